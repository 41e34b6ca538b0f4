// SPDX-License-Identifier: GPL-2.0-or-later
// agentd asks souk-inspect about the files of one image, on a socket of packets. A question brings
// the file (SCM_RIGHTS); there is one answer to each, in the same order.
//
// agentd does not trust souk-inspect: an answer is bounded, and is refused as a whole unless every
// byte fits. Both ends are of one build. Pure.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "checkpoint/core_image.hpp"

namespace souk::inspect {

enum class FileKind : uint8_t { core = 1, ghost, files, ids, inventory, fs };

// An image of a process with so many groups, or with so many root directories, is not read.
inline constexpr size_t groups_max = 16'384, why_bytes_max = 300;
inline constexpr size_t question_bytes_max = 16, answer_bytes_max = 4 * groups_max + 512;

std::string pack(FileKind question);
Result<FileKind> parse_question(std::string_view packet);

struct GhostMode {
    uint32_t mode = 0;
    bool operator==(const GhostMode&) const = default;
};
struct Refusal {
    std::string why;  // one line
    bool operator==(const Refusal&) const = default;
};
using Answer = std::variant<CoreImage, GhostMode, EntryKinds, ImageNamespaces, FsRoot, Refusal>;
std::string pack(const Answer& answer);
Result<Answer> parse_answer(std::string_view packet);

}  // namespace souk::inspect
