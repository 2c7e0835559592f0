"""The napari plugin: dock widgets and sample data around what the library does; napari finds them in `napari.yaml`."""
