"""mmdeploy: render, check and prove multimodal llm-d deployments."""

__version__ = "0.1.0"
