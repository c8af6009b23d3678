// ---- kernels on one stream: the next one may begin while this one runs; it waits itself before it uses memory (sm_90)
DEV void next_kernel_may_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// The kernel before has ended, and what it has written may be read.
DEV void kernel_before_is_over() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
