// SPDX-License-Identifier: GPL-2.0-or-later
// OutputAcks: what a job's home has of its two output streams, as the job's cell was told, and
// whether souk-init is to send again what comes after that. Output that is not kept anywhere yet
// stays in souk-init, which sends a byte once and waits: whoever refuses it has to ask for it, and
// an answer to that may never depend on news.
//
// Pure. Owned by the Cell, which does what ack() says.
#pragma once

#include <cstdint>

namespace souk {

class OutputAcks {
  public:
    enum class Tell : uint8_t {
        nothing,
        safe,       // up to safe_to() of this stream
        all_again,  // both streams from safe_to() on
    };
    // The home has `stream` (1 stdout, 2 stderr) up to `offset`. again: it did not keep what came
    // after that.
    Tell ack(uint32_t stream, uint64_t offset, bool again) {
        if (stream < 1 || stream > 2) return Tell::nothing;
        uint64_t& safe = safe_[stream - 1];
        const bool news = offset > safe;
        if (news) safe = offset;
        if (again || wanted_) return asked(), Tell::all_again;
        return news ? Tell::safe : Tell::nothing;
    }
    // Output could not be sent to the home.
    void not_sent() { wanted_ = true; }
    // All is asked for again now.
    void asked() { wanted_ = false; }
    uint64_t safe_to(int i) const { return safe_[i]; }

  private:
    uint64_t safe_[2] = {0, 0};
    bool wanted_ = false;
};

}  // namespace souk
