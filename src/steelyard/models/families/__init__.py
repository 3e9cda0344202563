"""One file per model family; `registry` finds it by the checkpoint's architecture."""
