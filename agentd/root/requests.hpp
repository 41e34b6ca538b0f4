// SPDX-License-Identifier: GPL-2.0-or-later
// agentd asks souk-root for these, on a socket of packets (SOCK_SEQPACKET), one request at a time,
// and gets these answers:
//
//   agentd:     program, capsule, criu, open, port, take, settle, status, inside, look, fit,
//               waits, end, connect, device, give, learn, inputs, own_file, cpu_event, adopt, arm,
//               loaded, act, hold, feed, held, release, say, mend, keep, see
//               (each with the descriptors that it names, SCM_RIGHTS)
//   souk-root:  started (a pidfd; of a capsule also the connection to its souk-init), done (what
//               was opened), refused
//
// The list is closed: souk-root does nothing else. It does not trust agentd, which reads what comes
// over the network: a request is one of these in every byte and in the number of its descriptors,
// or is refused as a whole. As whom processes run is not agentd's to say (agentd/who): a capsule is
// made for a user whom the kernel or the market vouches for, and what is restored in it is his.
// Both ends are of one build. Each of these has its number (`kind`) and, where they are always as
// many, that of its descriptors. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/launch.hpp"
#include "checkpoint/reach.hpp"
#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/device.hpp"

namespace souk::root {

inline constexpr size_t packet_bytes_max = 128 << 10, why_bytes_max = 4096;
inline constexpr size_t words_max = 4096, word_bytes_max = 64 << 10, groups_max = 16384;
inline constexpr size_t status_bytes_max = 64 << 10;
inline constexpr size_t pids_max = 24 << 10, limits_max = 16;
inline constexpr size_t ticket_bytes_max = 16 << 10, adopted_max = 4096;

// These are this installation's own programs. Descriptors: 3, 4, ... of the new process.
enum class Program : uint8_t { handshake = 1, inspect = 2, files = 3 };
struct StartProgram {
    static constexpr uint8_t kind = 1;
    Program program{};
    std::vector<std::string> words;  // of `files` alone
    bool session = false;            // it leads one
    bool operator==(const StartProgram&) const = default;
};

// CapsuleOptions. Descriptors: its directory; with `files` /dev/fuse and the table of requests;
// with `cgroup` the v2 group; those of v1. `own`: its job began on this machine; else the market's
// ticket says whose it is.
struct MakeCapsule {
    static constexpr uint8_t kind = 2;
    bool own_net = false, private_tmp = false, check_access = false, home_tree = false;
    bool hosts = false, files = false, cgroup = false, own = false;
    RunsAs user;
    std::string ticket;
    std::vector<std::string> laid_over, hidden;
    std::string run_keep;
    bool operator==(const MakeCapsule&) const = default;
};

// CriuLaunch; refused with EALREADY as long as another one is in that capsule. Descriptors:
// souk-init's pidfd, the socket, the image's directory; unless it restores the closed stream; with
// `cgroup` the v2 group; `ends` ends of the job; those of v1. It uses files as the user of its
// capsule.
struct StartCriu {
    static constexpr uint8_t kind = 3;
    bool restores = false, cgroup = false;
    bool limited = false;  // of CriuUser
    uint8_t ends = 0;
    bool operator==(const StartCriu&) const = default;
};

// checkpoint/reach.hpp says what these are. Descriptor: a pidfd of a process of a capsule; of
// OpenFile one for each that is to be opened, answered in their order.
struct OpenFile {
    static constexpr uint8_t kind = 4;
    ProcessFile file{};
    bool operator==(const OpenFile&) const = default;
};
struct TakeDescriptor {  // of its souk-init
    static constexpr uint8_t kind = 6, descriptors = 1;
    uint32_t number = 0;
    bool operator==(const TakeDescriptor&) const = default;
};
// Descriptor: an image's directory.
struct SettleSockets {
    static constexpr uint8_t kind = 7, descriptors = 1;
    bool runs = false;
    bool operator==(const SettleSockets&) const = default;
};
// The status file of the configuration; empty: it is removed. No descriptor.
struct PutStatus {
    static constexpr uint8_t kind = 8, descriptors = 0;
    std::string text;
    bool operator==(const PutStatus&) const = default;
};
// These four bring a pidfd of souk-init. OpenDirectory opens one of the capsule's directories.
struct OpenDirectory {
    static constexpr uint8_t kind = 9, descriptors = 1;
    CapsuleDirectory which{};
    bool operator==(const OpenDirectory&) const = default;
};
// Numbers inside. Answered with a file that has the look as text.
struct LookInside {
    static constexpr uint8_t kind = 10, descriptors = 1;
    LookFor what;
    std::vector<int32_t> pids;
    bool operator==(const LookInside&) const = default;
};
// checkpoint/restored.hpp; whether it is the capsule's user's. pids: as numbered here.
struct FitRestored {
    static constexpr uint8_t kind = 11, descriptors = 1;
    std::vector<int32_t> pids;
    std::vector<std::pair<uint8_t, uint64_t>> limits;
    bool operator==(const FitRestored&) const = default;
};
struct AskWaits {
    static constexpr uint8_t kind = 12, descriptors = 1;
    bool operator==(const AskWaits&) const = default;
};
// Asks whether that CRIU has loaded what it was given. Descriptor: its pidfd.
struct AskLoaded {
    static constexpr uint8_t kind = 26, descriptors = 1;
    bool operator==(const AskLoaded&) const = default;
};
// Descriptor: a pidfd of what was started here, or of a process of a capsule.
struct EndProcess {
    static constexpr uint8_t kind = 13, descriptors = 1;
    bool operator==(const EndProcess&) const = default;
};
// Descriptors: a pidfd of souk-init, and its capsule's directory. Answered with a connection to it.
struct ConnectInit {
    static constexpr uint8_t kind = 14, descriptors = 2;
    bool operator==(const ConnectInit&) const = default;
};
// kernel/sys/host/device.hpp. No descriptor.
struct OpenOfMachine {
    static constexpr uint8_t kind = 15, descriptors = 0;
    Device which{};
    bool operator==(const OpenOfMachine&) const = default;
};
// Descriptor: a directory of agentd's. What root has made there is agentd's from then on.
struct GiveFiles {
    static constexpr uint8_t kind = 19, descriptors = 1;
    bool operator==(const GiveFiles&) const = default;
};
// Descriptor: a pidfd of souk-init, in whose capsule CRIU has looked at the kernel: what it has
// learnt is laid out for the next ones.
struct LearnKernel {
    static constexpr uint8_t kind = 20, descriptors = 1;
    bool operator==(const LearnKernel&) const = default;
};
// Descriptor: an inotify instance, which watches the machine's terminals and input devices from
// then on. Answered with a file that has a line "NUMBER PATH" for each.
struct AddInputs {
    static constexpr uint8_t kind = 21, descriptors = 1;
    bool pseudo = false;
    bool operator==(const AddInputs&) const = default;
};
// agentd's configuration, or the file that its user_map names; as they were named when agentd
// began. No descriptor.
enum class OwnFile : uint8_t { configuration = 1, users = 2 };
struct OpenOwnFile {
    static constexpr uint8_t kind = 22, descriptors = 0;
    OwnFile file{};
    bool operator==(const OpenOwnFile&) const = default;
};
// kernel/sys/host/cpu_event.hpp; 0: an event that programs write to. No descriptor.
struct OpenEvent {
    static constexpr uint8_t kind = 23, descriptors = 0;
    uint16_t cpu = 0;
    uint32_t every_us = 0;
    bool operator==(const OpenEvent&) const = default;
};
// kernel/sys/net/port_work.hpp. Descriptor: a pidfd of souk-init. Answered with the port, which
// stands for that interface as long as agentd has it open, and, made shut, with the maps of its
// gates; `yes`: there is one on loopback too.
struct MakePort {
    static constexpr uint8_t kind = 5, descriptors = 1;
    PortPlan plan;
    bool operator==(const MakePort&) const = default;
};
// These bring the port as their first descriptor. ArmPort is answered with the maps of its gates.
struct ArmPort {
    static constexpr uint8_t kind = 25, descriptors = 1;
    Gate at_first{};
    bool operator==(const ArmPort&) const = default;
};
struct ActOnPort {
    static constexpr uint8_t kind = 27, descriptors = 1;
    PortAct what{};
    bool operator==(const ActOnPort&) const = default;
};
struct HoldFrames {
    static constexpr uint8_t kind = 28, descriptors = 1;
    FrameWay way{};  // to the job or from it
    bool follows = false;
    bool operator==(const HoldFrames&) const = default;
};
struct FeedFrames {
    static constexpr uint8_t kind = 29;
    Nanos since;
    bool frames = false;  // there are some: a file of them, sealed, which encode_frames() has made
    bool operator==(const FeedFrames&) const = default;
};
struct TellHeld {  // answered with such a file
    static constexpr uint8_t kind = 30, descriptors = 1;
    bool operator==(const TellHeld&) const = default;
};
struct ReleaseFrames {
    static constexpr uint8_t kind = 31, descriptors = 1;
    FrameRelease how;
    bool operator==(const ReleaseFrames&) const = default;
};
struct SayFrames {  // descriptor too: such a file
    static constexpr uint8_t kind = 32, descriptors = 2;
    FrameWay way{};  // to the job or within
    bool operator==(const SayFrames&) const = default;
};
// Ends TCP repair of a socket of a job's process. The answer says whether there was something to
// end.
struct EndRepair {
    static constexpr uint8_t kind = 33, descriptors = 1;
    uint32_t number = 0;
    bool operator==(const EndRepair&) const = default;
};
// Brings two programs that see the packets of all sockets (kernel/sys/process/packet_sight.hpp), or
// none. agentd has loaded them before it reads anything. This counts once.
struct KeepPackets {
    static constexpr uint8_t kind = 34;
    bool some = false;
    bool operator==(const KeepPackets&) const = default;
};
// Lets these programs run while agentd has the descriptor of the answer open. No descriptor.
struct SeePacketsOfAll {
    static constexpr uint8_t kind = 35, descriptors = 0;
    bool operator==(const SeePacketsOfAll&) const = default;
};
// Names the users who have jobs on this machine. This counts when souk-root has no list of users
// yet, and until the first one that says that no more follow.
struct AdoptUsers {
    static constexpr uint8_t kind = 24, descriptors = 0;
    std::vector<RunsAs> users;
    bool more = false;
    bool operator==(const AdoptUsers&) const = default;
};
using Asked = std::variant<StartProgram, MakeCapsule, StartCriu, OpenFile, MakePort, TakeDescriptor,
                           SettleSockets, PutStatus, OpenDirectory, LookInside, FitRestored,
                           AskWaits, EndProcess, ConnectInit, OpenOfMachine, GiveFiles, LearnKernel,
                           AddInputs, OpenOwnFile, OpenEvent, AdoptUsers, AskLoaded, ArmPort,
                           ActOnPort, HoldFrames, FeedFrames, TellHeld, ReleaseFrames, SayFrames,
                           EndRepair, KeepPackets, SeePacketsOfAll>;

struct Started {
    static constexpr uint8_t kind = 16;
    int32_t pid = 0;
    uint64_t start_ticks = 0;  // of a capsule's PID 1
    bool operator==(const Started&) const = default;
};
struct Refused {
    static constexpr uint8_t kind = 17;
    int32_t code = 0;
    std::string why;  // one line
    bool operator==(const Refused&) const = default;
};
struct Done {
    static constexpr uint8_t kind = 18;
    bool yes = true;  // to what asks whether
    bool operator==(const Done&) const = default;
};
using Told = std::variant<Started, Refused, Done>;

std::string pack(const Asked& asked);
std::string pack(const Told& told);
// Parses a request that came with that many descriptors.
Result<Asked> parse_asked(std::string_view packet, size_t descriptors);
Result<Told> parse_told(std::string_view packet);

}  // namespace souk::root
