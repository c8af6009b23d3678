"""Runtime: load, check arguments, launch, time. The only importer of CuPy."""
