// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/job_status.hpp"

#include <algorithm>

#include "kernel/base/units.hpp"

namespace souk::tools {
namespace {

bool runs(JobPhase phase) { return phase == JobPhase::running || phase == JobPhase::moving; }

std::string phase_text(const wire::Meter& m, Nanos for_so_long) {
    std::string at = m.where.empty() ? "" : " on " + m.where;
    switch (m.phase) {
        case JobPhase::waiting: return " waits " + human_span(for_so_long);
        case JobPhase::starting: return " starts" + at;
        case JobPhase::moving: return " moves from " + m.where;
        case JobPhase::freezing: return " freezes" + at;
        case JobPhase::frozen: return " frozen" + at + " for " + human_span(for_so_long);
        case JobPhase::thawing: return " thaws";
        case JobPhase::finished: return " has ended";
        case JobPhase::running: return at;
    }
    return at;
}

}  // namespace

void JobStatus::meter(const wire::Meter& meter, Nanos now) {
    if (!known_ || runs(meter.phase) != runs(meter_.phase)) since_ = now;
    meter_ = meter;
    known_ = true;
    told_ = now;
}

Money JobStatus::cost(Nanos now) const {
    if (!meter_.counts) return meter_.cost;
    return meter_.cost + cost_of(meter_.price, meter_.cpus, std::max(Nanos{}, now - told_));
}

bool JobStatus::new_price() {
    if (!known_ || !runs(meter_.phase) || meter_.price == price_told_) return false;
    price_told_ = meter_.price;
    return true;
}

std::string JobStatus::money(Nanos now) const {
    if (!known_) return {};
    std::string text;
    if (runs(meter_.phase)) {
        text = human_money(meter_.price) + " per CPU-hour";
        if (meter_.cpus > 1) text += " on " + std::to_string(meter_.cpus) + " CPUs";
    }
    const Money so_far = cost(now);
    if (so_far > Money{} || runs(meter_.phase))
        text += (text.empty() ? "" : ", ") + human_money(so_far) + " so far";
    return text;
}

std::string JobStatus::line(const std::string& id, Nanos now) const {
    if (!known_) return id + ": " + news_;
    std::string text = id + phase_text(meter_, now - since_);
    const std::string costs = money(now);
    if (!costs.empty()) text += (runs(meter_.phase) ? " at " : ", ") + costs;
    if (!news_.empty()) text += "; " + news_;
    return text;
}

void ScreenUse::wrote(std::string_view bytes) {
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        switch (state_) {
            case State::plain:
                if (c == 0x1b) state_ = State::escape;
                line_start_ = c == '\n' || (c == '\r' && line_start_);
                break;
            case State::escape:
                if (c != '[') taken_ = true;
                state_ = c == '[' ? State::sequence : State::plain;
                break;
            case State::sequence:
                if (byte < 0x40) break;
                // colours, and the rest of a line: what programs do that write lines
                if (c != 'm' && c != 'K') taken_ = true;
                state_ = State::plain;
                break;
        }
    }
}

}  // namespace souk::tools
