// SPDX-License-Identifier: GPL-2.0-or-later
// Splicing (Splice, home_io.hpp): a job has gone back to a checkpoint, or begins anew, and writes
// again what it had written since. Here it is worked out where its streams at home and in its
// capsule part, and what its user reads there.
#pragma once

#include "agentd/core/home_io.hpp"

namespace souk {

// As long are the job's streams at home (stdout or the terminal, stderr), and so much of its input
// it has been given in all. Afterwards its splice is not due any more. `files`: what is to be said
// of the files that it has written since.
void splice(HomeJob& job, const uint64_t output_end[2], uint64_t input_end,
            const std::string& files = {});

}  // namespace souk
