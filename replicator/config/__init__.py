"""Flow files: `load` turns YAML into a frozen `Config`, or raises with each fault by key path and line."""

from replicator.config.load import FlowFileError, load, load_text
from replicator.config.models import (
    Cluster,
    Commit,
    Config,
    Flow,
    Limits,
    MetricsSection,
    Properties,
    SparkSection,
    Start,
    TopicConfigs,
)
from replicator.config.sections import FileSection, json_schema
from replicator.model.delivery import Delivery

__all__ = [
    "Cluster",
    "Commit",
    "Config",
    "Delivery",
    "FileSection",
    "Flow",
    "FlowFileError",
    "Limits",
    "MetricsSection",
    "Properties",
    "SparkSection",
    "Start",
    "TopicConfigs",
    "json_schema",
    "load",
    "load_text",
]
