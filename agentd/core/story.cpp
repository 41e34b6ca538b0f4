// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/story.hpp"

#include <utility>

#include "kernel/base/check.hpp"
#include "kernel/base/json.hpp"

namespace souk {

const char* to_string(StoryStep::What what) {
    using What = StoryStep::What;
    switch (what) {
        case What::submitted: return "submitted";
        case What::changed: return "changed";
        case What::priced: return "priced";
        case What::started: return "started";
        case What::moved: return "moved";
        case What::frozen: return "frozen";
        case What::thawed: return "thawed";
        case What::stopped: return "stopped";
        case What::resumed: return "resumed";
        case What::failed: return "failed";
        case What::checkpoint: return "checkpoint";
        case What::went_back: return "went_back";
        case What::finished: return "finished";
        case What::evacuated: return "evacuated";
    }
    MUST(false);
}

namespace {

// If two such steps come in a row, only the second is told, with how many there were.
bool takes_place_of(const StoryStep& step, const StoryStep& last) {
    using What = StoryStep::What;
    if (step.what != last.what) return false;
    if (step.what == What::failed) return step.node == last.node && step.why == last.why;
    if (step.what == What::resumed) return step.node == last.node;  // now it is known to run
    return step.what == What::priced || step.what == What::checkpoint;
}

// The parts of a pause one after the other. One whose beginning or end is not known is not told.
struct StoryPart {
    const char* name;
    Nanos span{-1};
};
std::vector<StoryPart> parts_of(const StoryStep& s) {
    std::vector<StoryPart> parts;
    Nanos from;
    for (const auto& [name, end] : {std::pair{"sent", s.sent},
                                    {"restored", s.held},
                                    {"decided", s.released},
                                    {"running", s.pause}}) {
        if (end < from) continue;
        parts.push_back({name, end - from});
        from = end;
    }
    return parts;
}

std::string tenths(Nanos span) {
    const int64_t n = (span.ns + 50'000) / 100'000;
    return std::to_string(n / 10) + "." + std::to_string(n % 10);
}

std::string megabytes(uint64_t bytes) {
    const uint64_t n = (bytes + 52'428) / 104'857;
    return std::to_string(n / 10) + "." + std::to_string(n % 10) + " MB";
}

const char* form_of(const StoryStep& s) {
    MoveForecast f;
    f.form = s.form;
    f.precopy_bytes = s.precopy_bytes;
    return move_name(f);
}

void write_move(JsonWriter& j, const StoryStep& s) {
    j.field("form", form_of(s));
    if (s.precopy_bytes > 0) j.field("ahead_bytes", s.precopy_bytes);
    if (s.pause.ns < 0) return;
    j.field("pause_ms", s.pause.ms());
    for (const StoryPart& p : parts_of(s)) j.field(std::string(p.name) + "_ms", p.span.ms());
    if (s.total.ns >= 0) j.field("total_ms", s.total.ms());
}

}  // namespace

Story::Story(std::vector<StoryStep> steps, uint32_t left_out) : left_out_(left_out) {
    if (!steps.empty()) steps_ = std::make_shared<const std::vector<StoryStep>>(std::move(steps));
}

const std::vector<StoryStep>& Story::steps() const {
    static const std::vector<StoryStep> none;
    return steps_ ? *steps_ : none;
}

void Story::add(StoryStep step) {
    if (step.why.size() > why_max) step.why.resize(why_max);
    if (step.why.detail.size() > detail_max) step.why.detail.resize(detail_max);
    const std::vector<StoryStep>& old = steps();
    const bool instead = !old.empty() && takes_place_of(step, old.back());
    const bool full = !instead && old.size() >= steps_max;
    if (instead && step.what != StoryStep::What::resumed) step.count = old.back().count + 1;
    if (full) left_out_ += old[first_kept].count;
    std::vector<StoryStep> steps;
    steps.reserve(old.size() + 1);
    for (size_t i = 0; i < old.size() - instead; ++i)
        if (!full || i != first_kept) steps.push_back(old[i]);
    steps.push_back(std::move(step));
    steps_ = std::make_shared<const std::vector<StoryStep>>(std::move(steps));
}

bool Story::operator==(const Story& other) const {
    return left_out_ == other.left_out_ && (steps_ == other.steps_ || steps() == other.steps());
}

void write_story(JsonWriter& j, const Story& story) {
    j.field("left_out", story.left_out()).key("steps").begin_array();
    for (const StoryStep& s : story.steps()) {
        j.begin_object().field("at_unix_s", s.at.seconds()).field("step", to_string(s.what));
        if (s.count > 1) j.field("count", s.count);
        if (!s.node.empty()) j.field("node", s.node);
        if (!s.from.empty()) j.field("from", s.from);
        if (s.price.micro > 0) j.field("price", s.price);
        if (s.bytes > 0) j.field("bytes", s.bytes);
        if (s.what == StoryStep::What::moved) write_move(j, s);
        if (s.components > 0) j.field("components", s.components);
        if (s.skew.ns >= 0) j.field("skew_ms", s.skew.ms());
        if (s.what == StoryStep::What::resumed && s.total.ns >= 0)
            j.field("total_ms", s.total.ms());
        write_cause(j, "why", s.why);
        if (!s.why.detail.empty()) j.field("detail", s.why.detail);
        j.end_object();
    }
    j.end_array();
}

std::string move_parts(const StoryStep& s) {
    if (s.pause.ns < 0) return {};
    std::string text = std::string(" (") + form_of(s);
    if (s.precopy_bytes > 0) text += ", " + megabytes(s.precopy_bytes) + " ahead";
    if (s.bytes > 0)
        text += ", " + megabytes(s.bytes) + (s.precopy_bytes > 0 ? " while it stood" : "");
    const char* between = "; ";
    for (const StoryPart& p : parts_of(s)) {
        text += std::string(between) + p.name + " " + tenths(p.span);
        between = ", ";
    }
    return text + " ms)";
}

}  // namespace souk
