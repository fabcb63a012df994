"""Arguments of a model's forward, made from its signature and its configuration.

There are several forms of inputs; forms() gives them from the richest to the barest, and the first that a model runs with in
eager is its own. The same form at another size is the second call.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from architectures.configs import number


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a call is."""

    batch: int
    length: int
    """tokens; sounds and series are a multiple of it"""


SIZES = (Size(2, 16), Size(3, 24))


@dataclasses.dataclass(frozen=True)
class Form:
    """Which arguments, and of which shapes where the signature leaves that open."""

    modalities: bool
    """images with the tokens, with as many placeholders among these as the model makes of them"""
    masks: bool
    pixels: str
    """"images" (4 dimensions), "frames" (5), "patches" (rows, with a grid)"""
    sound: str
    """"frames" (time, bins), "bins" (bins, time), "wave" (batch, samples), "channel" (batch, 1, samples)"""


# What may come with tokens: images, or else sounds.
OTHER = ("pixel_values", "input_features", "input_values")


def forms(model: torch.nn.Module) -> Iterator[Form]:
    """Forms to try, the richest first."""
    names = inspect.signature(model.forward).parameters
    main = main_input(model)
    both = main == "input_ids" and any(other in names for other in OTHER)
    pixels = [p for p in ("patches", "images", "frames") if p != "patches" or _grids(names)]
    sounds = ("frames", "bins") if "input_features" in names else ("wave", "channel", "frames")
    for modalities in (True, False) if both else (False,):
        for masks in (True, False):
            seen = modalities or main in OTHER
            for kind in pixels if seen or "pixel" in main or main == "hidden_states" else pixels[:1]:
                for sound in sounds if seen and any(n in names for n in OTHER[1:]) else sounds[:1]:
                    yield Form(modalities, masks, kind, sound)


def _grids(names: Any) -> bool:
    return "image_grid_thw" in names or "grid_thw" in names


def main_input(model: torch.nn.Module) -> str:
    """The argument that the model says is its input, if its forward has it."""
    names = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    if main in names:
        return str(main)
    return next((n for n in ("input_ids", "pixel_values", "input_values", "input_features") if n in names), str(main))


class Making:
    """The arguments of one call."""

    def __init__(self, model: torch.nn.Module, form: Form, size: Size, seed: int) -> None:
        self.model, self.config, self.form, self.size = model, model.config, form, size
        self.names = inspect.signature(model.forward).parameters
        self.main = main_input(model)
        self.generator = torch.Generator().manual_seed(seed)
        text = self.config.get_text_config() if hasattr(self.config, "get_text_config") else self.config
        self.vocabulary = min(number(text, "vocab_size", default=100), number(self.config, "vocab_size", default=10**9))
        self.found: dict[str, Any] = {}

    def randn(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, max(low + 1, high), shape, generator=self.generator)

    def ids(self, *shape: int) -> torch.Tensor:
        # Special tokens are first and last of the vocabulary.
        return self.integers(
            min(5, self.vocabulary - 1), max(6, min(self.vocabulary, self.vocabulary * 3 // 4)), *shape
        )

    def mask(self, *shape: int) -> torch.Tensor:
        """Ones, then padding: more of it in each further row."""
        result = torch.ones(shape, dtype=torch.long)
        for row in range(1, shape[0]):
            result[row, ..., max(1, shape[-1] - 1 - row) :] = 0
        return result

    def token_shape(self) -> tuple[int, ...]:
        choices = (2,) if type(self.model).__name__.endswith("ForMultipleChoice") else ()
        return (self.size.batch, *choices, self.size.length)

    def image_side(self) -> tuple[int, int]:
        config = getattr(self.config, "vision_config", None) or self.config
        value = getattr(config, "image_size", None)
        if isinstance(value, dict):
            value = [value.get("height", 64), value.get("width", 64)]
        if isinstance(value, list | tuple) and len(value) == 2:
            return int(value[0]), int(value[1])
        side = number(config, "image_size", "img_size", "input_size", default=64)
        return side, side

    def pixels(self) -> torch.Tensor:
        config = getattr(self.config, "vision_config", None) or self.config
        channels = number(config, "num_channels", "in_channels", "in_chans", "num_image_channels", default=3)
        height, width = self.image_side()
        if self.form.pixels == "patches":
            patch = number(config, "patch_size", "spatial_patch_size", default=14)
            time = number(config, "temporal_patch_size", default=1)
            return self.randn(self.size.batch * 16, channels * time * patch * patch)
        frames = number(config, "num_frames", "frames_per_clip", default=1)
        between = (frames,) if self.form.pixels == "frames" else ()
        return self.randn(self.size.batch, *between, channels, height, width)

    def sound(self) -> torch.Tensor:
        bins = number(
            self.config, "num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels", "input_dim", default=80
        )
        batch, length = self.size.batch, self.size.length
        if self.form.sound == "wave":
            return self.randn(batch, 200 * length)
        if self.form.sound == "channel":
            return self.randn(batch, number(self.config, "audio_channels", default=1), 200 * length)
        frames = 4 * length
        if self.form.sound == "bins":  # of models whose table of positions fixes how long a sound is
            frames = 2 * number(self.config, "max_source_positions", default=2 * length)
            return self.randn(batch, bins, frames)
        if self.main == "input_values":
            frames = number(self.config, "max_length", default=frames)
        return self.randn(batch, frames, bins)

    def series(self) -> torch.Tensor:
        lags = getattr(self.config, "lags_sequence", None) or [0]
        length = number(self.config, "context_length", default=32) + max(lags)
        channels = number(self.config, "num_input_channels", default=1)
        if "past_time_features" in self.names:
            return self.randn(self.size.batch, length)
        return self.randn(self.size.batch, length, channels)

    def bbox(self) -> torch.Tensor:
        corner = self.integers(0, 50, *self.token_shape(), 2)
        return torch.cat([corner, corner + 20], -1)

    def grid(self) -> torch.Tensor:
        return torch.tensor([[1, 4, 4]] * self.size.batch)

    def place_images(self) -> None:
        """Puts as many placeholders among the tokens as the model makes of an image."""
        token = next(
            (
                value
                for name in ("image_token_id", "image_token_index", "media_placeholder_token_id")
                if isinstance(value := getattr(self.config, name, None), int)
            ),
            None,
        )
        features = getattr(self.model, "get_image_features", None)
        if token is None or features is None:
            return
        arguments = {k: self.found[k] for k in ("pixel_values", "image_grid_thw") if k in self.found}
        with torch.no_grad():
            made = features(**arguments)
        made = getattr(made, "pooler_output", made)
        pieces = list(made) if isinstance(made, list | tuple) else [made]
        count = sum(p.numel() // p.shape[-1] for p in pieces) // self.size.batch
        front = torch.full((self.size.batch, count), token)
        start = getattr(self.config, "vision_start_token_id", None)
        if isinstance(start, int):
            front = torch.cat([torch.full((self.size.batch, 1), start), front], 1)
        self.found["input_ids"] = torch.cat([front, self.found["input_ids"]], 1)
        if "attention_mask" in self.found:
            self.found["attention_mask"] = self.mask(*self.found["input_ids"].shape)
        if "mm_token_type_ids" in self.names:
            self.found["mm_token_type_ids"] = (self.found["input_ids"] == token).long()

    def argument(self, name: str) -> Any:
        """The argument of that name, LookupError where there is no rule."""
        batch, length = self.size.batch, self.size.length
        rules: dict[str, Callable[[], Any]] = {
            "input_ids": lambda: self.ids(*self.token_shape()),
            "inputs": lambda: self.ids(batch, length),
            "decoder_input_ids": lambda: self.ids(batch, max(4, length // 2)),
            "qformer_input_ids": lambda: self.integers(0, 99, batch, 6),
            "bbox": self.bbox,
            "pixel_values": self.pixels,
            "image": self.pixels,
            "pixel_values_videos": self.pixels,
            "grid_thw": self.grid,
            "image_grid_thw": self.grid,
            "hidden_states": self.pixels,
            "input_values": self.sound,
            "input_features": self.sound,
            "audio_mel": self.sound,
            "past_values": self.series,
            "past_values_padding": lambda: torch.zeros(self.series().shape[:2], dtype=torch.long),
            "freq": lambda: torch.zeros(batch, 1, dtype=torch.long),
            "past_observed_mask": lambda: torch.ones_like(self.found["past_values"]),
            "past_time_features": lambda: self.randn(
                *self.found["past_values"].shape[:2], int(getattr(self.config, "num_time_features", 1))
            ),
            "flattened_patches": lambda: self.randn(batch, length, 2 + 3 * 16 * 16),
            "inputs_embeds": lambda: self.randn(batch, length, number(self.config, "hidden_size", default=64)),
            "query_embeds": lambda: self.randn(batch, 8, number(self.config, "hidden_size", default=64)),
            "task_inputs": lambda: self.integers(0, 99, batch, number(self.config, "task_seq_len", default=77)),
            "input_features_mask": lambda: torch.ones(self.found["input_features"].shape[:2], dtype=torch.long),
            "audio_mel_mask": lambda: torch.zeros(self.found["audio_mel"].shape[:2], dtype=torch.bool),
            "merge_sizes": lambda: torch.ones(batch, dtype=torch.long),
        }
        if name not in rules:
            raise LookupError(f"no rule for the argument {name}")
        return rules[name]()

    def attention_mask(self) -> torch.Tensor | None:
        """The padding mask that goes with the main input."""
        main = self.found.get(self.main)
        if self.main in ("input_ids", "inputs", "inputs_embeds"):
            return self.mask(*main.shape[:3] if len(self.token_shape()) == 3 else main.shape[:2])
        if self.main == "input_values" and main.dim() == 2:
            return self.mask(*main.shape)
        if self.main == "input_features":
            time = 1 if self.form.sound == "frames" else 2
            return self.mask(main.shape[0], main.shape[time])
        return None

    def all(self) -> dict[str, Any]:
        """Every argument of the form."""
        names = self.names
        needed = [
            n for n, p in names.items() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        wanted = list(dict.fromkeys([self.main, *needed]))
        companions = ["decoder_input_ids", "bbox"] if self.main != "decoder_input_ids" else []
        if self.form.modalities:
            companions += [next(other for other in OTHER if other in names)]
            companions += ["image_grid_thw"] if self.form.pixels == "patches" else []
        for name in [*wanted, *(c for c in companions if c in names and c not in wanted)]:
            if name != "attention_mask":
                self.found[name] = self.argument(name)
        for name in ("attention_mask", "pixel_mask"):
            if name not in names or not (self.form.masks or name in needed):
                continue
            mask = self.attention_mask() if name == "attention_mask" else self.pixel_mask()
            if mask is not None:
                self.found[name] = mask
        if self.form.modalities:
            self.place_images()
        return self.found

    def pixel_mask(self) -> torch.Tensor | None:
        pixels = self.found.get("pixel_values")
        if pixels is None or pixels.dim() != 4:
            return None
        mask = torch.ones(pixels.shape[0], *pixels.shape[-2:], dtype=torch.long)
        mask[1:, :, pixels.shape[-1] * 3 // 4 :] = 0
        return mask


def make_inputs(model: torch.nn.Module, form: Form, size: Size, seed: int = 0) -> dict[str, Any]:
    """The arguments of a call; LookupError where a needed one has no rule."""
    return Making(model, form, size, seed).all()


def labels(model: torch.nn.Module, inputs: dict[str, Any], seed: int = 0) -> Iterator[dict[str, Any]]:
    """Arguments that may make the model compute its loss: the first with which it does is right."""
    names = inspect.signature(model.forward).parameters
    generator = torch.Generator().manual_seed(100 + seed)
    config = getattr(model, "config", None)  # models of timm have none
    classes = max(2, int(getattr(config, "num_labels", 2) or 2))
    first = next(v for v in inputs.values() if isinstance(v, torch.Tensor))
    batch = first.shape[0]
    if "image_grid_thw" in inputs or "grid_thw" in inputs:
        batch = inputs.get("image_grid_thw", inputs.get("grid_thw")).shape[0]

    def integers(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator)

    if "start_positions" in names:
        yield {"start_positions": integers(8, batch), "end_positions": integers(8, batch)}
    if "future_values" in names and "past_values" in inputs:
        length = number(config, "prediction_length", default=8)
        past = inputs["past_values"]
        future = {"future_values": torch.randn(past.shape[0], length, *past.shape[2:], generator=generator)}
        if "future_time_features" in names:
            count = int(getattr(config, "num_time_features", 1))
            future["future_time_features"] = torch.randn(past.shape[0], length, count, generator=generator)
        yield future
    if "labels" in names:
        tokens = inputs.get("decoder_input_ids", inputs.get("input_ids"))
        named = type(model).__name__
        per_token = [] if tokens is None else [{"labels": integers(classes, *tokens.shape)}]
        if tokens is not None and any(part in named for part in ("LM", "Conditional", "Masked", "Seq2Seq")):
            per_token = [{"labels": tokens.clone()}]
        whole = [{"labels": integers(classes, batch)}]
        yield from (
            [*whole, *per_token] if "Classification" in named and "Token" not in named else [*per_token, *whole]
        )
        yield {"labels": 1 + integers(9, batch, 4)}  # characters of a transcript
        if "pixel_values" in inputs and inputs["pixel_values"].dim() == 4:
            yield {"labels": integers(classes, batch, *inputs["pixel_values"].shape[-2:])}
        boxes = [
            {"class_labels": integers(classes, 2), "boxes": torch.rand(2, 4, generator=generator) / 2}
            for _ in range(batch)
        ]
        yield {"labels": boxes}
    if "mask_labels" in names and "pixel_values" in inputs:
        side = inputs["pixel_values"].shape[-2:]
        yield {
            "mask_labels": [integers(2, 2, *side).float() for _ in range(batch)],
            "class_labels": [integers(classes, 2) for _ in range(batch)],
        }
    if "return_loss" in names:
        yield {"return_loss": True}
