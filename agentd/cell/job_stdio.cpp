// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/job_stdio.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "agentd/wire/types.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk {

// -------------------------------------------------------------------------------------------------
// output

void JobStdio::output(uint32_t stream, uint64_t offset, std::string_view bytes) {
    if (stream >= 1 && stream <= 2)
        received_[stream - 1] = std::max(received_[stream - 1], offset + bytes.size());
    // Not passed on (no home now, or its queue is full): it stays in souk-init until the home asks
    // again.
    if (silent_ || !hooks_.output(stream, offset, bytes)) acks_.not_sent();
}

void JobStdio::output_eof(uint32_t stream, uint64_t offset) {
    if (stream < 1 || stream > 2) return;
    eof_[stream - 1] = true;
    ends_.output[stream - 1] = offset;
}

void JobStdio::ack(uint32_t stream, uint64_t offset, bool again) {
    const OutputAcks::Tell tell = acks_.ack(stream, offset, again);
    if (tell == OutputAcks::Tell::all_again) return resync();
    if (tell == OutputAcks::Tell::safe)
        line_.ack(stream, acks_.safe_to(static_cast<int>(stream) - 1));
}

void JobStdio::resync() {
    acks_.asked();
    line_.ask_again(acks_.safe_to(0), acks_.safe_to(1));
}

void JobStdio::speak() {
    hooks_.input_taken(input_taken_);
    resync();
    look_for_end();
}

// -------------------------------------------------------------------------------------------------
// its end

void JobStdio::exited(int32_t wait_status) {
    exited_ = wait_status;
    wait_for_output();
}

// The output of a job that has exited ends by itself, unless something outside of the capsule holds
// its pipe: then what has come is all. While the home takes none of it (it is away, or its disk is
// full) there may be more to come.
void JobStdio::wait_for_output() {
    exit_limit_ = loop_.after(patience_, [this, before = std::array{received_[0], received_[1]}] {
        for (int i = 0; i < 2; ++i)
            if (!eof_[i] && (received_[i] > acks_.safe_to(i) || received_[i] > before[i]))
                return wait_for_output();
        for (int i = 0; i < 2; ++i) {
            ends_.output[i] = std::max(ends_.output[i], received_[i]);
            eof_[i] = true;
        }
        look_for_end();
    });
}

// The end is told when the whole output has been: its lengths go with it.
void JobStdio::look_for_end() {
    if (!exited_ || end_told_ || silent_ || !hooks_.end_counts() || !eof_[0] || (!eof_[1] && !tty_))
        return;
    end_told_ = true;
    exit_limit_.cancel();
    hooks_.ended(*exited_);
}

void JobStdio::read_ends(std::string_view residue) {
    souk_residue r;
    if (residue.size() != sizeof r) return;
    std::memcpy(&r, residue.data(), sizeof r);
    for (int i = 0; i < SOUK_STREAMS; ++i) ends_.output[i] = r.out[i].end;
    ends_.input = r.input_offset + r.input_len;
}

// -------------------------------------------------------------------------------------------------
// input

void JobStdio::input_taken(uint64_t offset, uint64_t limit) {
    input_taken_ = offset;
    input_limit_ = limit;
    if (!silent_) hooks_.input_taken(input_taken_);
    feed_input();
}

void JobStdio::input(uint64_t offset, std::string_view bytes, bool eof) {
    const uint64_t have = std::max(input_at_ + input_.size(), input_taken_);
    // a gap: the home sends again from what was taken
    if (offset > have && !input_.empty()) return;
    // After a move the home may know sooner than we do what the capsule has taken: it came with the
    // image.
    if (input_.empty()) input_at_ = std::max(have, offset);
    const uint64_t known = input_at_ + input_.size() - offset;
    if (known < bytes.size() && input_.size() < wire::input_room_bytes)
        input_.append(bytes.substr(known));
    if (eof && offset + bytes.size() <= input_at_ + input_.size() && input_eof_ == Eof::no)
        input_eof_ = Eof::due;
    feed_input();
}

void JobStdio::feed_input() {
    if (!line_.answers()) return;
    if (input_taken_ > input_at_) {
        input_.erase(0, std::min<uint64_t>(input_taken_ - input_at_, input_.size()));
        input_at_ = input_taken_;
    }
    while (!input_.empty() && input_at_ < input_limit_) {
        const size_t n =
            std::min<uint64_t>({input_.size(), input_limit_ - input_at_, SOUK_DATA_MAX});
        if (!line_.input(input_at_, std::string_view(input_).substr(0, n))) return;
        input_.erase(0, n);
        input_at_ += n;
    }
    if (input_.empty() && input_eof_ == Eof::due && line_.input_eof(input_at_))
        input_eof_ = Eof::sent;
}

}  // namespace souk
