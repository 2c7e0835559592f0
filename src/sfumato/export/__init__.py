"""Export models for other programs: ONNX, BioImage.IO and the Hugging Face Hub. One file per destination."""
