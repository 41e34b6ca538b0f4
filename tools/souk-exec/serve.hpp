// SPDX-License-Identifier: GPL-2.0-or-later
// souk-exec --serve: the program of a component that runs what the others ask for. It is an
// ordinary process of the job, with the job's rights, and moves with it.
#pragma once

namespace souk::tools {

// Serves until it is killed. Returns an exit status; errors are already said.
int serve_exec();

}  // namespace souk::tools
