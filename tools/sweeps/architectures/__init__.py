"""`make zoo`: every model class of transformers' auto mappings at a small size, compiled, beside eager."""
