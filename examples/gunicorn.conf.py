"""gunicorn with several workers for `fastapi_app`: each forked worker opens connections of its own.

gunicorn --config examples/gunicorn.conf.py examples.fastapi_app:app
"""

workers = 2
worker_class = "uvicorn_worker.UvicornWorker"
preload_app = True
bind = "127.0.0.1:8000"
