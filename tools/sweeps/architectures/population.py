"""Which architectures there are: all classes of transformers' auto mappings, and models of timm by family."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A class of transformers, or a model of timm ("timm:NAME")."""

    name: str
    kind: str
    """the configuration's model_type, or timm's family"""
    tasks: tuple[str, ...]
    """the mappings that name it, as "causal_lm"; "" is plain AutoModel"""


def classes() -> dict[str, Architecture]:
    """Every model class that a mapping of transformers names."""
    from transformers.models.auto import modeling_auto

    found: dict[str, tuple[str, list[str]]] = {}
    for mapping, entries in vars(modeling_auto).items():
        if not (re.fullmatch(r"MODEL_.*_NAMES", mapping) and isinstance(entries, dict)):
            continue
        task = re.sub(r"^MODEL_(FOR_)?|(MAPPING_)?NAMES$", "", mapping).strip("_").lower()
        for kind, names in entries.items():
            for name in [names] if isinstance(names, str) else names:
                found.setdefault(name, (kind, []))[1].append(task)
    return {name: Architecture(name, kind, tuple(tasks)) for name, (kind, tasks) in sorted(found.items())}


def class_of(architecture: Architecture) -> tuple[type[Any], type[Any]]:
    """The model's class and its configuration's."""
    import transformers
    from transformers.models.auto import configuration_auto

    module = configuration_auto.model_type_to_module_name(architecture.kind)
    model = getattr(importlib.import_module(f"transformers.models.{module}"), architecture.name, None)
    model = model or getattr(transformers, architecture.name)
    own = model.config_class
    named = configuration_auto.CONFIG_MAPPING[architecture.kind]
    return model, named if own is None or issubclass(named, own) else own


def loaded(architecture: Architecture) -> None:
    """Imports the code of the architecture, and what every model needs; raises what that raises."""
    if not architecture.name.startswith("timm:"):
        class_of(architecture)


def timm_models(families_each: int = 2) -> dict[str, Architecture]:
    """The first models of each of timm's families; ImportError where timm is not there."""
    timm = importlib.import_module("timm")
    chosen: dict[str, Architecture] = {}
    for family in timm.list_modules():
        names = timm.list_models(module=family)
        # Small ones stand for their family; the names say which these are.
        small = re.compile(r"(pico|femto|atto|nano|tiny|small|mini|_xxs|_xs|_s\b|_0\b|_b0|18|26|050|075)")
        names.sort(key=lambda name: (not small.search(name), len(name), name))
        for name in names[:families_each]:
            chosen[f"timm:{name}"] = Architecture(f"timm:{name}", family, ("image_classification",))
    return chosen
