// SPDX-License-Identifier: GPL-2.0-or-later
// CapsuleRig: a capsule, its client and a plain poll loop for tests. It keeps the job's output by
// absolute offset and fails the test on a hole or a contradiction. Its end kills the capsule, waits
// for it and removes its directory.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/capsule_client.hpp"
#include "tests/unit/temp_dir.hpp"

namespace souk::unit {

// Null, or why tests of capsules must be skipped.
const char* capsules_impossible();
std::string souk_init_path();  // beside the test program

struct JobOutput {
    std::string text[SOUK_STREAMS];
    bool eof[SOUK_STREAMS] = {};
    uint64_t acknowledged[SOUK_STREAMS] = {};
};

class CapsuleRig {
  public:
    // `output` is shared by the capsules that a job goes through.
    // `user`: the only one whom its job may be.
    explicit CapsuleRig(JobOutput& output, bool own_net = false, const RunsAs& user = {});
    ~CapsuleRig();

    // Handles what comes until `done` holds; false after `seconds`.
    bool until(const std::function<bool()>& done, double seconds = 30);
    void pump(int timeout_ms);
    void start(const LaunchSpec& spec, int cgroup = -1, bool hold = false);
    void drop_connection();
    void connect_again();
    bool ended() const { return exit.has_value() && output.eof[0] && output.eof[1]; }
    // Sends as much of `bytes` as the window takes; false if none is left to send.
    void send_input(std::string_view bytes);

    JobOutput& output;
    TempDir dir;
    Capsule capsule;
    CapsuleClient client;
    bool closed = false, welcomed = false, started = false, helpers_ready = false, loaded = false,
         prepared = false, held = false;
    bool acknowledge = true;
    std::string terminal;  // of the started job, for CRIU
    int root = 0;
    std::optional<int> drained;
    std::optional<souk_exit> exit;
    std::optional<std::string> failure;
    int failure_code = 0;
    bool program_failure = false;
    souk_welcome welcome{};
    souk_residue residue{};
    std::vector<Fd> ends;
    std::optional<int> stopped;
    std::string typed;  // input that the window has not yet taken
    uint64_t input_sent = 0, input_limit = 0, input_taken = 0;

  private:
    void handle(CapsuleClient::Event& event);
    void push_input();
};

LaunchSpec shell(const std::string& script);
LaunchSpec python(const std::string& script);

}  // namespace souk::unit
