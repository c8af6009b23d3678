"""Code generation: tile program to CUDA C++, and CUDA C++ to cubin."""
