// SPDX-License-Identifier: GPL-2.0-or-later
// The agentd side of kernel/sys/process/init_protocol.h as values: pure, no fd is touched.
// Everything decoded is checked first; what fails is a record that souk-init of this version would
// not send.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk {

// The packed form (souk_spec) of what a capsule starts; souk-init reads it where it lies
// (init_spec.hpp). Each field of LaunchSpec is in it.
// Errors: no program, a NUL inside a string, longer than SOUK_SPEC_MAX.
Result<std::string> encode_spec(const LaunchSpec& spec);

enum class InitEventKind : uint8_t {
    welcome = SOUK_WELCOME,
    started = SOUK_STARTED,
    exec_failed = SOUK_EXEC_FAILED,
    output = SOUK_OUTPUT,
    output_eof = SOUK_OUTPUT_EOF,
    input_taken = SOUK_INPUT_TAKEN,
    exited = SOUK_EXITED,
    stopped = SOUK_STOPPED,
    helpers_ready = SOUK_HELPERS_READY,
    drained = SOUK_DRAINED,
    prepared = SOUK_PREPARED,
    loaded = SOUK_LOADED,
    failed = SOUK_FAILED,
    leased = SOUK_LEASED,
    held = SOUK_HELD,
    closed,  // the connection ended (made by CapsuleClient)
};

// One message of souk-init. `bytes` holds the data of output, or the text of a failure.
struct InitEvent {
    InitEventKind kind{};
    uint32_t stream = 0;
    int32_t value = 0;
    uint64_t offset = 0, limit = 0;
    std::string bytes;
    souk_welcome welcome{};  // welcome
    souk_exit exit{};        // exited
    souk_residue residue{};  // loaded, with value 0

    // Says for a failure what could not be done, and why.
    std::string trouble() const;
};

Result<InitEvent> decode_init_event(std::string_view record);
// One record. `bytes` must be at most SOUK_DATA_MAX.
std::string encode_init_message(souk_type type, uint32_t stream = 0, int32_t value = 0,
                                uint64_t offset = 0, uint64_t limit = 0,
                                std::string_view bytes = {});

Result<souk_exit> decode_exit(std::string_view file);
Result<souk_residue> decode_residue(std::string_view file);
// CRIU's names of the job's old ends: three pipes, or one terminal.
std::vector<std::string> stdio_keys(const souk_residue& residue);
std::string tty_key(uint64_t rdev, uint64_t dev);

}  // namespace souk
