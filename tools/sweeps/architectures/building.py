"""The smallest model of an architecture that runs in eager, with inputs that it takes."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import random
import time
from typing import Any

import torch

import numpy
from architectures.configs import RECIPES, Recipe, small_config
from architectures.inputs import SIZES, Form, Size, forms, make_inputs
from architectures.population import Architecture, class_of

MOST_PARAMETERS = 60_000_000
MOST_SECONDS = 40.0  # after these no further recipe is tried

# What single architectures need beside the rules: attributes of their configurations, each with its reason.
EXCEPTIONS: dict[str, dict[str, Any]] = {
    "reformer": {"axial_pos_shape": (8, 16), "axial_pos_embds": False},  # the product has to be the training length
}


class NotSmall(Exception):
    """No small form of the architecture was found; says why a try failed."""


@dataclasses.dataclass
class Built:
    """A model and its form of inputs."""

    model: torch.nn.Module
    recipe: Recipe
    form: Form | None
    image: tuple[int, ...] = ()
    """timm: an image's shape"""

    def inputs(self, number: int) -> dict[str, Any]:
        """The arguments of the first or second size."""
        size = SIZES[number]
        if self.form is None:
            generator = torch.Generator().manual_seed(number)
            return {"x": torch.randn(size.batch, *self.image, generator=generator)}
        return make_inputs(self.model, self.form, size, seed=number)


def seed() -> None:
    """Every generator of random numbers that a model may use."""
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:400]


def _model(architecture: Architecture, recipe: Recipe, use_cache: bool) -> torch.nn.Module:
    model_class, config_class = class_of(architecture)
    exceptions = EXCEPTIONS.get(architecture.kind, {})
    changes = {**({} if use_cache else {"use_cache": False}), **exceptions}

    def made() -> Any:
        return model_class(small_config(config_class, recipe, **changes))

    size = 0
    with contextlib.suppress(Exception), torch.device("meta"):
        size = sum(p.numel() for p in made().parameters())
    if size > MOST_PARAMETERS:
        raise NotSmall(f"{size} parameters")
    seed()
    return made().eval()


def _runs(model: torch.nn.Module, form: Form) -> None:
    """Raises what eager raises at either size."""
    for number, size in enumerate(SIZES):
        arguments = make_inputs(model, form, size, seed=number)
        seed()
        with torch.no_grad():
            model(**arguments)


def build(architecture: Architecture, use_cache: bool = False) -> Built:
    """The first recipe and form of inputs that run in eager at both sizes; NotSmall when none does."""
    if architecture.name.startswith("timm:"):
        return _build_timm(architecture)
    problem, start = "", time.monotonic()
    for recipe in RECIPES:
        if time.monotonic() - start > MOST_SECONDS:
            break
        try:
            model = _model(architecture, recipe, use_cache)
        except Exception as error:
            problem = problem or f"{recipe.name}: {_text(error)}"
            if isinstance(error, ImportError | AttributeError) and not isinstance(error, NotSmall):
                break
            continue
        tried = ""
        for form in forms(model):
            try:
                _runs(model, form)
            except Exception as error:
                tried = tried or _text(error)
                if isinstance(error, LookupError) and "no rule for" in str(error):
                    raise NotSmall(str(error)) from error
                continue
            return Built(model, recipe, form)
        problem = problem or f"{recipe.name}: {tried}"
    raise NotSmall(problem)


def _build_timm(architecture: Architecture) -> Built:
    timm = importlib.import_module("timm")
    problem = ""
    # Few models can be made for another size of images; the others keep theirs.
    for name, options in (("small images", {"img_size": 64}), ("own images", {})):
        try:
            seed()
            model = timm.create_model(architecture.name.removeprefix("timm:"), pretrained=False, **options).eval()
            own = model.pretrained_cfg.get("input_size", (3, 224, 224))
            image = (own[0], 64, 64) if options or not _fixed(model) else tuple(own)
            with torch.no_grad():
                model(torch.randn(2, *image))
        except Exception as error:
            problem = problem or _text(error)
            continue
        return Built(model, Recipe(name, 0, 0.0), None, image)
    raise NotSmall(problem)


def _fixed(model: torch.nn.Module) -> bool:
    """Whether the model takes images of one size only."""
    return bool(getattr(model, "pretrained_cfg", {}).get("fixed_input_size")) or math.isnan(
        float(getattr(model, "num_classes", 0))
    )


__all__ = ["Built", "NotSmall", "Size", "build", "seed"]
