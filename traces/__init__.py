"""Traces: span names, the recorder that node programs wire, the collector with its store, Jaeger's API, the client.

Import from the modules; this file stays empty so that a node that only names spans loads nothing else.
"""
