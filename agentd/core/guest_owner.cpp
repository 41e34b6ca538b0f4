// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_owner.hpp"

#include <utility>

namespace souk {

using namespace guest;

namespace {

constexpr Nanos doubt_after = Nanos::from_s(300), doubt_after_max = Nanos::from_s(3'600);

// Makes reasons equal that differ only in numbers: the same reason names other processes, files and
// sizes each time.
std::string kind_of(const std::string& why) {
    std::string kind;
    for (const char c : why) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit)
            kind += c;
        else if (kind.empty() || kind.back() != '#')
            kind += '#';
    }
    return kind;
}

}  // namespace

bool GuestOwner::set_accepting(bool accepting, Trouble why) {
    const bool is_news = accepting_ != accepting;
    off_since_ = accepting ? Nanos::never() : accepting_ ? clock_ : std::min(off_since_, clock_);
    accepting_ = accepting;
    due_ = {};
    why_not_ = std::move(why);
    return is_news;
}

void GuestOwner::settle_pause(Entry& e, Outputs& out) const {
    const bool pause = can_stop_ && !pause_.empty();
    if (e.pause_asked == pause) return;
    e.pause_asked = pause;
    e.effect(Do::What::pause, out);
    std::get<Do>(out.back()).on = pause;
}

void GuestOwner::note_trouble(Entry& e, const Trouble& why) {
    Leaving::Troubles& t = e.leaving.troubles;
    std::string kind = kind_of(why + why.detail);
    if (t.kind != kind) t = {std::move(kind), {}, 0, {}};
    t.why = why;
    ++t.count;
    t.until = clock_ +
              std::min(doubled(doubt_after, t.count - Leaving::troubles_enough), doubt_after_max);
    due_ = {};
}

void GuestOwner::note_not_restored(Entry& e) {
    e.leaving.not_restored = because(CauseCode::criu_cannot_restore);
    note_trouble(e, e.leaving.not_restored);
    e.leaving.troubles.count = std::max(e.leaving.troubles.count, Leaving::troubles_enough);
}

}  // namespace souk
