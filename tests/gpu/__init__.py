"""`tests/gpu/run`: everything that needs a GPU, in one command with a time limit.

    tests/gpu/run [--device cuda|cpu] [--quick] [--seconds 480] [--out FILE]

Each part is a process of its own, so that one that fails or hangs leaves the others alone. Its measurements are printed
one by one as JSON, so that a part that is ended by its time limit leaves those that it has.
"""
