"""The machine: threads, memory, devices and GPU claims, progress reports, the import of torchvision."""
