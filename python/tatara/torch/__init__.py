"""What the core calls by name where a program uses torch (src/capture/host/package.def). Private."""
