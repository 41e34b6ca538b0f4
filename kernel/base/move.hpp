// SPDX-License-Identifier: GPL-2.0-or-later
// The forms of a move, as every room names them, and what one is expected to cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernel/base/time.hpp"

namespace souk {

enum class MoveForm : uint8_t {
    stop_and_copy,  // all memory goes with the image
    pages_first,    // private memory goes straight out of the frozen job, before the copy may run
    post_copy,      // the same, while the copy runs already
};
const char* to_string(MoveForm form);
struct MoveForecast;
// Names the form with the steps before it: "pre-copy", "pre-copy, post-copy".
const char* move_name(const MoveForecast& forecast);

// The owner of a job chooses how it may move (srun --move).
enum class MovePolicy : uint8_t {
    automatic,  // the form with the shortest pause that is worth it
    safe,       // never runs before its memory is whole
    fast,       // runs as soon as it can
};
const char* to_string(MovePolicy policy);

// A job uses the node's network, or has its own (srun --net).
enum class NetMode : uint8_t {
    host,  // that of the node where it is
    own,   // a network namespace of its own, with an address that moves with it
};
const char* to_string(NetMode mode);

// A job sees the files of its node, or of its home (srun --files).
enum class FilesMode : uint8_t {
    local,  // those of the node where it is
    home,   // those of its home, wherever it is
};
const char* to_string(FilesMode mode);

// A user asks for files with this (srun --files), or agentd's configuration does (`files`).
struct FilesWish {
    FilesMode mode = FilesMode::local;
    bool is_auto = false;  // the home chooses (agentd/core/files_choice.hpp)
    bool operator==(const FilesWish&) const = default;
};
// local, home or auto.
std::optional<FilesWish> files_wish(std::string_view name);

// A job's /tmp is one of these (srun --tmp; with FilesMode::home also `files_tmp` of its home's
// configuration).
enum class FilesTmp : uint8_t {
    home,    // its home's; FilesMode::local: that of the node where it is
    node,    // that of the node where it is
    own,     // its own, which goes along
    shared,  // only asked for: any but its own
};

// A job's established TCP connections are treated like this when the job stops for a move or a
// freeze (srun --tcp).
enum class TcpPolicy : uint8_t {
    close,   // the job finds them closed
    refuse,  // as long as it has one it does not move
    keep,    // they go along: their address does (NetMode::own)
};
const char* to_string(TcpPolicy policy);

struct MoveForecast {
    MoveForm form = MoveForm::stop_and_copy;
    Nanos pause;  // it stands still
    // from frozen at the source, or the first page sent ahead, until whole at the destination
    Nanos total;
    uint64_t precopy_bytes = 0;  // sent while it ran (pre-copy), as it was; 0: nothing
    Nanos precopy_time;          // how long that took
    uint32_t precopy_rounds = 0;
    // that the last of these left for the stop, when the move was planned
    uint64_t left_bytes = 0;
    uint64_t frozen_bytes = 0;  // that went after it stood still, as it was
    // distinct bytes that it wrote to, measured while the first round went
    uint64_t dirty_bytes_per_s = 0;
    // as an earlier move measured it, for the plan; 0: not known
    uint64_t dirty_expected_bytes_per_s = 0;
    bool operator==(const MoveForecast&) const = default;
};

}  // namespace souk
