"""The panel: what the widgets of the notebook and the JupyterLab panel speak with (docs/panel-protocol.md)."""
