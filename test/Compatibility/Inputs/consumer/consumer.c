/* consumer PACKAGE: two steps of Inputs/tiny.mlir through the C interface, as the header of one
 * release has it. */
#include HEADER

#include <stdio.h>

static int fail(memopt_error *error) {
  fprintf(stderr, "code %d: %s\n", error->code, error->message);
  memopt_error_clear(error);
  return 1;
}

int main(int argc, char **argv) {
  memopt_session *session;
  memopt_session_options options = {sizeof options, "cpu", 1, 0};
  memopt_error error;
  if (argc != 2 || memopt_c_version() < MEMOPT_C_VERSION)
    return 2;
  if (memopt_session_open(argv[1], &options, &session, &error) ||
      memopt_session_initialize(session, MEMOPT_INIT_WEIGHTS, 0, &error))
    return fail(&error);
  for (int step = 1; step <= 2; ++step) {
    float x[6], loss;
    for (int i = 0; i < 6; ++i)
      x[i] = 0.25f * (float)step * (float)(i - 2);
    const int64_t shape[2] = {2, 3};
    memopt_view view = {x, "f32", shape, NULL, 2};
    if (memopt_session_run_step(session, &view, 1, &error) ||
        memopt_session_read(session, MEMOPT_OUTPUT, "loss", &loss, sizeof loss, &error))
      return fail(&error);
    printf("step %d: loss %.4f\n", step, (double)loss);
  }
  memopt_session_close(session);
  return 0;
}
