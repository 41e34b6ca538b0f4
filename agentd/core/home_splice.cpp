// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_splice.hpp"

#include <algorithm>

namespace souk {

namespace {

std::string why_back(const HomeJob& job) {
    const auto& steps = job.story.steps();
    if (steps.empty() || steps.back().why.code != CauseCode::tried_again)
        return "its node was lost";
    return steps.back().why;
}

}  // namespace

void splice(HomeJob& job, const uint64_t output_end[2], uint64_t input_end,
            const std::string& files) {
    Splice& s = job.splice;
    const Checkpoint& c = job.checkpoint;
    // The first byte that its capsule will write again. It is no later than the output that has
    // come here, because the capsule keeps no more.
    uint64_t from[2], after[2];
    for (int i = 0; i < 2; ++i) {
        const uint64_t have = output_end[i] - std::min(output_end[i], s.shift[i]);
        from[i] = std::min(c.output_end[i], have);
        after[i] = have - from[i];
    }
    const bool tty = job.spec.launch.tty;
    const int stream = tty ? 0 : 1;
    s.text = "souk: job " + job.id.text() +
             (c.epoch.n > 0 ? " goes on from its checkpoint" : " begins anew") + " (" +
             why_back(job) + "); of what stands above, " + std::to_string(after[0]) + " bytes" +
             (tty ? "" : " of stdout") +
             (tty ? "" : " and " + std::to_string(after[1]) + " of stderr") +
             " were written after that and may come again" + (files.empty() ? "" : "; " + files);
    s.text = (tty ? "\r\n" : "\n") + s.text + (tty ? "\r\n" : "\n");
    s.at = output_end[stream];
    for (int i = 0; i < 2; ++i)
        s.shift[i] = output_end[i] + (i == stream ? s.text.size() : 0) - from[i];
    s.input_shift = std::max(input_end, c.input_end + s.input_shift) - c.input_end;
    s.due = false;
}

}  // namespace souk
