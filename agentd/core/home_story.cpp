// SPDX-License-Identifier: GPL-2.0-or-later
// Home: the steps of a job's story (story.hpp), as they happen.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"

namespace souk {

StoryStep Home::step_of(StoryStep::What what, const NodeName& node, std::string why,
                        Money price) const {
    StoryStep s;
    s.what = what;
    s.at = unix_now_;
    s.node = node;
    s.why = std::move(why);
    s.price = price;
    return s;
}

// The job is where it went. A pause below 0: when it stopped is not known.
StoryStep Home::moved_step(const HomeJob& job, const NodeName& from, Nanos pause, Nanos now) {
    StoryStep s =
        step_of(job.from_frozen ? StoryStep::What::thawed : StoryStep::What::moved, job.at.node);
    s.from = from;
    if (job.from_frozen || pause.ns < 0) return s;
    const Volatile& v = vol(job);
    const auto since = [&](Nanos at) {
        return at == Nanos::never() ? Nanos{-1} : std::max(Nanos{}, at - v.frozen_since);
    };
    s.form = v.forecast.form;
    s.precopy_bytes = v.forecast.precopy_bytes;
    s.bytes = v.forecast.frozen_bytes;
    s.pause = pause;
    s.sent = since(v.sent_at);
    s.held = since(v.held_at);
    s.released = since(v.released_at);
    s.total = now - v.frozen_since + v.forecast.precopy_time;
    return s;
}

}  // namespace souk
