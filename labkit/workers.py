"""The name under which the scripts of notebook 14 import `serve`; all is in `labkit.remote`."""

from labkit.remote import WorkerFailed, Workers, launch, serve

__all__ = ["WorkerFailed", "Workers", "launch", "serve"]
