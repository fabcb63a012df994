"""Every class of transformers' auto mappings that a small configuration can build, with random weights.

No list of models: a configuration is made small by the names of its attributes (SMALL), in several steps from the smallest
to the least changed; the first that builds and runs in eager counts. Inputs come from the signature of `forward`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

MOST_PARAMETERS = 60_000_000

# What a small model has, by the names that configurations use.
LAYERS = dict.fromkeys(
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
     "num_encoder_layers", "num_hidden_groups", "encoder_num_hidden_layers", "decoder_num_hidden_layers",
     "vision_layers", "num_attention_layers", "depth", "predictor_num_hidden_layers", "text_layers"), 2)  # fmt: skip
VOCABULARY = dict.fromkeys(("vocab_size", "text_vocab_size", "entity_vocab_size"), 160)
LENGTHS = {
    "max_position_embeddings": 128, "n_positions": 128, "n_ctx": 128, "max_source_positions": 128,
    "max_target_positions": 128, "max_sequence_length": 128, "max_length": 64, "max_seq_len": 128, "block_size": 16,
    "sliding_window": 8, "num_mel_bins": 16, "window_size": 4,
}  # fmt: skip
WIDTHS = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embed_dim": 64, "emb_dim": 64, "embedding_size": 32,
    "intermediate_size": 96, "ffn_dim": 96, "d_ff": 96, "n_inner": 96, "hidden_dim": 96, "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96, "inner_dim": 96, "feedforward_dim": 96, "encoder_intermediate_size": 96,
    "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48, "projection_dim": 32, "d_kv": 16,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "attention_heads": 4, "num_key_value_heads": 2, "num_encoder_attention_heads": 4,
    "head_dim": 16, "kv_channels": 16, "d_head": 16, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 16, "conv_dim": None, "encoder_hidden_size": 64, "decoder_hidden_size": 64,
    "cross_attention_hidden_size": 64, "vocab_size_per_layer_input": 160, "hidden_size_per_layer_input": 16,
    "rotary_dim": 8, "state_size": 8, "time_step_rank": 4,
}  # fmt: skip
IMAGES = {"image_size": 32, "patch_size": 8, "tubelet_size": 2, "num_frames": 4}

# From the smallest to the least changed.
STEPS: tuple[dict[str, Any], ...] = (
    {**LAYERS, **VOCABULARY, **LENGTHS, **WIDTHS, **IMAGES},
    {**LAYERS, **VOCABULARY, **LENGTHS, **WIDTHS},
    {**LAYERS, **VOCABULARY, **LENGTHS, **IMAGES},
    {**LAYERS, **VOCABULARY, **LENGTHS},
    {**LAYERS, **VOCABULARY},
    {**LAYERS},
    {},
)


class NotSmall(Exception):
    """No small form of the model was found; says why the last try failed."""


def class_names() -> dict[str, list[str]]:
    """Model classes of all auto mappings, each with the tasks that name it."""
    found: dict[str, list[str]] = {}
    for mapping in sorted(vars(modeling_auto)):
        if not mapping.startswith("MODEL_") or not mapping.endswith("MAPPING_NAMES"):
            continue
        task = mapping.removeprefix("MODEL_FOR_").removesuffix("_MAPPING_NAMES").lower()
        for names in vars(modeling_auto)[mapping].values():
            for name in [names] if isinstance(names, str) else names:
                found.setdefault(name, []).append(task)
    return found


def model_class(name: str) -> type[torch.nn.Module]:
    """The class of that name; LookupError where this transformers lacks it."""
    with contextlib.suppress(Exception):
        if (found := getattr(transformers, name, None)) is not None:
            return found
    for mapping, module in (
        (vars(modeling_auto)[m], key)
        for m in vars(modeling_auto)
        if m.startswith("MODEL_") and m.endswith("MAPPING_NAMES")
        for key in vars(modeling_auto)[m]
        if name
        in (
            vars(modeling_auto)[m][key],
            *(vars(modeling_auto)[m][key] if isinstance(vars(modeling_auto)[m][key], tuple) else ()),
        )
    ):
        del mapping
        path = configuration_auto.model_type_to_module_name(module)
        with contextlib.suppress(Exception):
            return getattr(importlib.import_module(f"transformers.models.{path}.modeling_{path}"), name)
    raise LookupError(name)


def shrink(config: Any, values: dict[str, Any]) -> None:
    """Gives the attributes that the configuration and its parts have these values."""
    for part in [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]:
        if part is not None:
            shrink(part, values)
    names = getattr(type(config), "attribute_map", {})
    for name, value in values.items():
        own = names.get(name, name)
        if value is None or not isinstance(getattr(config, own, None), int) or isinstance(getattr(config, own), bool):
            continue
        if getattr(config, own) > value:
            with contextlib.suppress(Exception):
                setattr(config, own, value)
    layers = getattr(config, "num_hidden_layers", None)
    for name in ("layer_types", "layers_block_type", "attention_layers", "mlp_layer_types"):
        kinds = getattr(config, name, None)
        if isinstance(kinds, list) and isinstance(layers, int) and len(kinds) > layers:
            # Every kind of layer stays.
            order = list(dict.fromkeys(kinds))
            with contextlib.suppress(Exception):
                setattr(config, name, (order * layers)[: max(layers, len(order))])
                config.num_hidden_layers = max(layers, len(order))
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "mask_token_id"):
        token = getattr(config, name, None)
        if isinstance(token, int) and token >= (getattr(config, "vocab_size", None) or token + 1):
            setattr(config, name, 1)


def small_config(name: str, step: int) -> Any:
    """A fresh configuration of the model class, changed as STEPS[step] says."""
    cls = model_class(name)
    config = cls.config_class()
    shrink(config, STEPS[step])
    # Numbers that follow from others are computed when a configuration is made.
    with contextlib.suppress(Exception):
        config = cls.config_class.from_dict(config.to_dict())
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return config


def _parts(config: Any) -> list[Any]:
    return [
        config,
        *(getattr(config, name) for name in getattr(config, "sub_configs", {}) if getattr(config, name, None)),
    ]


def _number(config: Any, *names: str, default: int) -> int:
    for part in _parts(config):
        for name in names:
            value = getattr(part, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if isinstance(value, list | tuple) and value and isinstance(value[0], int):
                return value[0]
    return default


def make_inputs(model: torch.nn.Module, batch: int, length: int, padded: bool, seed: int = 0) -> dict[str, Any]:
    """Arguments of the model's forward: tokens with a padding mask, images, sound, as its signature asks."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = min(_number(text, "vocab_size", default=100), _number(config, "vocab_size", default=10**9))
    names = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")

    def tokens(*shape: int) -> torch.Tensor:
        return torch.randint(min(5, vocabulary - 1), vocabulary, shape, generator=generator)

    def mask(*shape: int) -> torch.Tensor:
        result = torch.ones(shape, dtype=torch.long)
        if padded:
            for row in range(1, shape[0]):
                result[row, shape[-1] - 1 - row :] = 0
        return result

    inputs: dict[str, Any] = {}
    size = _number(config, "image_size", default=64)
    channels = _number(config, "num_channels", "in_channels", "in_chans", default=3)
    if main in ("input_ids", "inputs") or ("input_ids" in names and main not in names):
        choices = (2,) if type(model).__name__.endswith("ForMultipleChoice") else ()
        shape = (batch, *choices, length)
        inputs["input_ids" if "input_ids" in names else main] = tokens(*shape)
        if "attention_mask" in names:
            inputs["attention_mask"] = mask(*shape) if not choices else torch.ones(shape, dtype=torch.long)
        if "bbox" in names:
            corner = torch.randint(0, 50, (*shape, 2), generator=generator)
            inputs["bbox"] = torch.cat([corner, corner + 20], -1)
        needs_pixels = names.get("pixel_values") is not None and type(config).__name__.startswith(
            ("CLIP", "Siglip", "Align", "AltCLIP", "Chinese", "Flava", "Owl", "XCLIP", "GroupViT", "Vilt", "Metaclip")
        )
        if needs_pixels:
            inputs["pixel_values"] = torch.randn(batch, channels, size, size, generator=generator)
    elif main == "pixel_values":
        frames = _number(config, "num_frames", default=0)
        shape = (batch, frames, channels, size, size) if frames else (batch, channels, size, size)
        inputs[main] = torch.randn(*shape, generator=generator)
    elif main in ("pixel_values_videos", "pixel_values_video"):
        frames = _number(config, "num_frames", "frames_per_clip", default=4)
        inputs[main] = torch.randn(batch, frames, channels, size, size, generator=generator)
    elif main == "input_values":
        rate = 100 * length
        bins = _number(config, "num_mel_bins", default=0)
        shape = (batch, _number(config, "max_length", default=length), bins) if bins else (batch, rate)
        inputs[main] = torch.randn(*shape, generator=generator)
    elif main == "input_features":
        bins = _number(config, "num_mel_bins", "input_feat_per_channel", "feature_size", default=80)
        positions = _number(config, "max_source_positions", default=0)
        frames = 2 * positions if positions and type(config).__name__.startswith("Whisper") else 4 * length
        first = (bins, frames) if positions and "Whisper" in type(config).__name__ else (frames, bins)
        inputs[main] = torch.randn(batch, *first, generator=generator)
    elif main == "past_values":
        context = _number(config, "context_length", default=32)
        channels = _number(config, "num_input_channels", "input_size", default=1)
        inputs[main] = torch.randn(batch, context, channels, generator=generator)
    else:
        raise NotSmall(f"no rule for the main input {main}")
    if "decoder_input_ids" in names:
        decoder = getattr(config, "decoder", None)
        if decoder is not None:
            vocabulary = min(vocabulary, _number(decoder, "vocab_size", default=vocabulary))
        inputs["decoder_input_ids"] = tokens(batch, max(4, length // 2))
    if getattr(config, "is_composition", False) and "return_loss" in names:
        inputs["return_loss"] = False
    return inputs


def build(name: str) -> tuple[torch.nn.Module, int]:
    """The model in its smallest form that runs in eager, and the step that gave it. NotSmall when there is none."""
    problem = "no try"
    for step in range(len(STEPS)):
        try:
            torch.manual_seed(0)
            return build_at(name, step), step
        except Exception as error:  # noqa: BLE001 - whatever a library raises: the next form is tried
            problem = f"{type(error).__name__}: {error}"
    raise NotSmall(problem[:300])


def build_at(name: str, step: int) -> torch.nn.Module:
    """The model as STEPS[step] makes it, in evaluation mode; raises what the library raises where it does not run."""
    config = small_config(name, step)
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class(name)(config).parameters())
    if size > MOST_PARAMETERS:
        raise NotSmall(f"{size} parameters")
    model = model_class(name)(config).eval()
    with torch.no_grad():
        model(**make_inputs(model, 2, 16, padded=True))
    return model
