"""The machine: threads, memory allocator, devices and GPU claims, the compiled parts of torchvision."""
