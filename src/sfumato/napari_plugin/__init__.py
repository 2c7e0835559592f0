"""The napari plugin: dock widgets and sample data for the library; napari finds them through `napari.yaml`."""
