"""Small configurations of any architecture, by rules on the names of attributes; no list of models.

Widths are divided by one factor in all parts of a configuration, and numbers of heads stay, so that what has to divide or to
equal something else still does. Layers become few, one of each kind that the model has. A recipe is a set of these rules;
small_configs() gives one configuration after the other, from the smallest to the least changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

VOCABULARY = 256
IMAGE = 64

# Rules by name: the first that matches counts.
_KEPT = re.compile(
    r"^(num_(attention|key_value)?_?heads|n_heads?)$|heads$|kernel|stride|padding|dilation|(?<!upsample_)groups|num_channels|in_chan|"
    r"num_mel|num_labels|_ratio|_factor|_range|sampling|patch_size|window|position_buckets|_eps$|_type$|version|"
    r"^(input|output)_channels$|num_input_channels|num_frames|tubelet|spatial_merge|temporal_patch|image_grid"
)
_TOKEN = re.compile(r"(token_ids?|token_index|_token|_token_idx)$|^(suppress|begin_suppress)_tokens$")
_VOCABULARY = re.compile(r"vocab(ulary)?_size|^vocab_size|codebook_size$|num_embeddings$")
_POSITIONS = re.compile(r"^(max_\w*(positions?|embeddings|length|len)|n_positions|n_ctx)$")
_WINDOW = re.compile(r"^(sliding|attention|local_attention)_window(_size)?$")
_DROPOUT = re.compile(r"drop")
_INDICES = re.compile(r"(indices|indexes|idxs?|_layers)$")
_LAYERS = re.compile(r"(layers?|depths?|blocks|num_hidden_groups)$")
_EXPERTS = re.compile(r"^(num|n|moe_num)_\w*experts$")
_CHOSEN = re.compile(r"experts_per_tok|num_experts_per|top_?k$|moe_k$")
_QUERIES = re.compile(r"num_\w*queries$")
_WIDTH = re.compile(
    r"hidden|(^|_)dims?($|_)|d_model|d_ff|d_kv|d_head|d_inner|d_embed|embd|emb(ed)?(ding)?(_size|_dim|s)?$|width|channels|"
    r"ffn|inner|intermediate|rank$|projection|feedforward|filters|state_size|mrope_section|proj_size|feature_size$|_dim|upsample_groups"
)
# What a configuration leaves open and a batch of padded rows or a forecast needs.
_OPEN = {"prediction_length": 8, "pad_token_id": 0}
_HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads", "attention_heads")
_HEAD_COUNT = re.compile(r"heads?$")
_HEAD_WIDTH = re.compile(r"head_dim|d_kv|d_head|kv_channels|mrope_section|rotary")
_HIDDEN = ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "emb_dim")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Which rules apply."""

    name: str
    layers: int
    divide: float
    """the widths' factor, as a share of the largest that leaves heads of eight numbers; 0: widths stay"""
    images: bool = True
    fewer: bool = True
    """fewer positions, experts and queries"""
    heads: bool = False
    """fewer heads of the model's own width, in place of as many narrower ones"""


RECIPES = (
    Recipe("smallest", 2, 1.0),
    Recipe("four layers", 4, 1.0),
    Recipe("fewer heads", 2, 1.0, heads=True),
    Recipe("wider", 4, 0.25),
    Recipe("large images", 2, 1.0, images=False),
    Recipe("all positions", 2, 0.5, images=False, fewer=False),
    Recipe("all widths", 2, 0.0),
    Recipe("few layers only", 4, 0.0, images=False, fewer=False),
)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _get(part: Any, name: str) -> Any:
    """An attribute; None where there is none, or where it is one that only layers have."""
    try:
        return getattr(part, name, None)
    except Exception:
        return None


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_number, value))


def _parts(config: Any) -> Iterator[Any]:
    """The configuration and those in it."""
    from transformers import PreTrainedConfig

    yield config
    for value in list(vars(config).values()):
        if isinstance(value, PreTrainedConfig):
            yield from _parts(value)


def number(config: Any, *names: str, default: int) -> int:
    """The first of these attributes that the configuration has, else its parts; of a list its first item."""
    for part in _parts(config):
        for name in names:
            value = _get(part, name)
            if isinstance(value, list | tuple) and value:
                value = value[0]
            if _is_number(value) and value > 0:
                return int(value)
    return default


def _factor(config: Any) -> int:
    """By how much all widths may be divided: heads of at least eight numbers stay."""
    smallest = 64
    for part in _parts(config):
        widths = [w for name in _HIDDEN if _is_number(w := _get(part, name))]
        heads = [h for name in _HEADS if _is_number(h := _get(part, name)) and h > 0]
        each = [_get(part, "head_dim") or (widths[0] // heads[0] if widths and heads else 0)]
        each += [d for name in ("qk_rope_head_dim", "d_kv") if _is_number(d := _get(part, name))]
        smallest = min([smallest, *(d // 8 for d in each if _is_number(d) and d >= 8)])
    return 2 ** int(math.log2(max(1, smallest)))


def _kept_layers(part: Any, wanted: int) -> tuple[int, list[int]] | None:
    """How many layers there were, and which stay: one of each kind, first of all."""
    count = _get(part, "num_hidden_layers")
    if not _is_number(count) or count <= wanted:
        return None
    lists = [v for v in vars(part).values() if isinstance(v, list | tuple) and len(v) == count]
    kinds: dict[str, int] = {}
    for index in range(count):
        kinds.setdefault(repr([v[index] for v in lists]), index)
    chosen = sorted(kinds.values())[: max(wanted, 4)]
    for index in range(count):
        if len(chosen) >= wanted:
            break
        if index not in chosen:
            chosen.append(index)
    return count, sorted(chosen)


class _Shrinking:
    """One recipe on one configuration."""

    def __init__(self, config: Any, recipe: Recipe) -> None:
        self.recipe = recipe
        factor = self._fewest_heads(config) if recipe.heads else _factor(config)
        self.factor = max(1, int(factor * recipe.divide))
        self.tokens: dict[int, int] = {}

    def _fewest_heads(self, config: Any) -> int:
        counts = [h for part in _parts(config) for name in _HEADS if _is_number(h := _get(part, name)) and h > 1]
        common = min(16, math.gcd(*counts)) if counts else 1
        return 2 ** int(math.log2(max(1, common if common >= 16 else common // 2)))

    def token(self, value: int) -> int:
        """Special tokens that no longer are in the vocabulary get other numbers, the same ones everywhere."""
        if value < VOCABULARY:
            return value
        return self.tokens.setdefault(value, VOCABULARY - 1 - len(self.tokens))

    def width(self, value: int) -> int:
        return max(1, value // self.factor) if value > 8 and value % self.factor == 0 else value

    def changed(self, name: str, value: Any, layers: int) -> Any:  # noqa: PLR0911
        """What becomes of a number, or of a list of numbers."""
        recipe = self.recipe

        def each(rule: Any) -> Any:
            return rule(value) if _is_number(value) else type(value)(rule(item) for item in value)

        if _TOKEN.search(name):
            return each(self.token)
        if _VOCABULARY.search(name):
            return each(lambda v: min(v, VOCABULARY))
        if re.search(r"(image|img|input)_size$|^crop_size", name):
            return value
        if _POSITIONS.search(name):
            return each(lambda v: min(v, 128)) if recipe.fewer else value
        if _WINDOW.search(name) and recipe.fewer:
            return each(lambda v: min(v, 20))  # over the first length, under the second
        if name == "window_size" and recipe.images and _is_number(value) and value <= 32:  # patches, not pixels
            return min(value, 2)
        if self.recipe.heads and _HEAD_COUNT.search(name):
            return each(lambda v: max(1, v // self.factor))
        if _KEPT.search(name) or (self.recipe.heads and _HEAD_WIDTH.search(name)):
            return value
        if _is_numbers(value) and _INDICES.search(name) and max(value) > 3:
            return [int(i * (layers - 1) / max(value)) if i >= 0 else i for i in value]
        if _LAYERS.search(name):
            if _is_number(value):
                return min(value, recipe.layers) if value > 0 else value
            return each(lambda v: min(v, 2))
        if name == "first_k_dense_replace":
            return min(value, 1)
        if recipe.fewer:
            if _EXPERTS.search(name):
                return each(lambda v: min(v, 4))
            if _CHOSEN.search(name):
                return each(lambda v: min(v, 2))
            if name in ("n_group", "topk_group"):
                return 1
            if _QUERIES.search(name):
                return each(lambda v: min(v, 12))
        return each(self.width) if _WIDTH.search(name) else value

    def part(self, part: Any) -> None:
        """Changes one configuration in place."""
        kept = _kept_layers(part, self.recipe.layers)
        layers = len(kept[1]) if kept else number(part, "num_hidden_layers", "depth", default=self.recipe.layers)
        for name, value in list(vars(part).items()):
            if name.startswith("_") or name in ("num_labels", "id2label"):
                continue
            new = value
            if isinstance(value, float) and _DROPOUT.search(name):
                new = 0.0
            elif kept and isinstance(value, list | tuple) and len(value) == kept[0]:
                new = type(value)(value[i] for i in kept[1])
                if _is_numbers(new) and not _LAYERS.search(name):
                    new = self.changed(name, new, layers)
            elif kept and _is_number(value) and name == self.name_of(part, "num_hidden_layers"):
                new = layers
            elif (_is_number(value) and not isinstance(value, bool)) or _is_numbers(value):
                new = self.changed(name, value, layers)
            elif isinstance(value, dict) and "mrope_section" in value and not self.recipe.heads:
                new = {**value, "mrope_section": [self.width(v) for v in value["mrope_section"]]}
            if self.recipe.images and re.search(r"^(image|img)_size$", name):
                new = self.image(part, value)
            if new is not value and new != value:
                with contextlib.suppress(Exception):  # a property without a setter
                    setattr(part, name, new)

    @staticmethod
    def name_of(part: Any, name: str) -> str:
        """The attribute that the configuration itself has for a common name."""
        return str(getattr(type(part), "attribute_map", {}).get(name, name))

    @staticmethod
    def image(part: Any, value: Any) -> Any:
        """A size of an image, a multiple of its patches."""
        patch = number(part, "patch_size", default=1)
        if patch > IMAGE:
            return value
        size = patch * -(-IMAGE // patch)
        if _is_number(value):
            return min(value, size)
        if isinstance(value, dict):
            return {k: min(v, size) if _is_number(v) and v > 0 else v for k, v in value.items()}
        return type(value)(min(v, size) for v in value) if _is_numbers(value) else value


def small_config(config_class: type[Any], recipe: Recipe, **changes: Any) -> Any:
    """A fresh configuration as the recipe makes it, then with these attributes."""
    known = {field.name for field in dataclasses.fields(config_class)} if dataclasses.is_dataclass(config_class) else ()
    config = config_class(**{name: value for name, value in _OPEN.items() if name in known})
    shrinking = _Shrinking(config, recipe)
    for part in list(_parts(config)):
        shrinking.part(part)
    # Numbers that follow from others are computed when a configuration is made.
    with contextlib.suppress(Exception):
        config = config_class.from_dict(config.to_dict())
    for part in _parts(config):
        for name, value in changes.items():
            if hasattr(part, name):
                with contextlib.suppress(Exception):
                    setattr(part, name, value)
        for name, value in _OPEN.items():
            if name in vars(part) and _get(part, name) is None:
                with contextlib.suppress(Exception):
                    setattr(part, name, value)
    return config
