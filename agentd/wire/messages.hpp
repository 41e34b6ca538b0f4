// SPDX-License-Identifier: GPL-2.0-or-later
// Agents and srun send these to each other as plain values; no machine knows them. The messages of
// the machines are in agentd/core/messages.hpp. Offsets count the bytes of one stream from its
// beginning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agentd/core/messages.hpp"
#include "agentd/wire/types.hpp"
#include "kernel/base/pages.hpp"
#include "market/core/messages.hpp"

namespace souk::wire {

enum class Stream : uint8_t { out = 1, err = 2 };

struct StdioData {
    JobId id;
    Epoch epoch;
    Stream stream = Stream::out;
    uint64_t offset = 0;
    std::string data;
    bool operator==(const StdioData&) const = default;
};
struct StdioAck {
    JobId id;
    Epoch epoch;
    Stream stream = Stream::out;
    uint64_t offset = 0;
    bool again = false;  // what came after it was not kept: all from there on is to be sent again
    bool operator==(const StdioAck&) const = default;
};
struct StdioInput {
    JobId id;
    Epoch epoch;
    uint64_t offset = 0;
    std::string data;
    bool eof = false;  // after `data`
    bool operator==(const StdioInput&) const = default;
};
struct StdioInputAck {
    JobId id;
    Epoch epoch;
    uint64_t offset = 0;
    bool operator==(const StdioInputAck&) const = default;
};
struct StdioWinch {
    JobId id;
    Epoch epoch;
    uint16_t rows = 0, cols = 0;
    bool operator==(const StdioWinch&) const = default;
};

struct ImageBegin {
    JobId id;
    Epoch new_epoch;   // whom the image is for
    Epoch from_epoch;  // whose it is
    NodeName sender;
    MoveForm form = MoveForm::stop_and_copy;
    // In hexadecimal digits. A tag with this nonce may come behind the image (stream_tag.hpp).
    std::string nonce = {};
    bool operator==(const ImageBegin&) const = default;
};
// Begins the memory of a job that still runs, which follows in rounds. Each end of a round is
// answered by pages_state (put: all bytes so far).
struct PrecopyBegin {
    JobId id;
    Epoch new_epoch;  // whom it is for
    NodeName sender;
    uint64_t bytes = 0;  // that the job has now
    bool operator==(const PrecopyBegin&) const = default;
};
// A job's home sends this: its files come, for the capsule of that epoch. Once image_result agrees,
// no more frames go either way (agentd/files/talk.hpp).
struct FilesBegin {
    JobId id;
    Epoch epoch;
    bool operator==(const FilesBegin&) const = default;
};
inline constexpr size_t page_wishes_max = 256;  // in one frame
// The destination sends this: it takes pages, has put so many bytes in place, and waits for these
// first.
struct PagesState {
    uint64_t put = 0;
    bool restored = false;  // every page may come
    std::vector<PageRange> wishes;
    bool operator==(const PagesState&) const = default;
};
// A node says this to its own gateway: others may be brought to it.
struct GatewayOffer {
    bool operator==(const GatewayOffer&) const = default;
};
// A node asks a gateway for a connection with a node of that gateway's site. `onward` is empty, or
// the gateway of another site, which the asker cannot reach itself: then `node` has that site's
// name before it.
struct GatewayAsk {
    uint64_t number = 0;
    NodeName node;
    std::string onward = {};
    bool operator==(const GatewayAsk&) const = default;
};
// The gateway answers with the pass that the asker's connection begins with (gateway_pass.hpp), or
// why there is none.
struct GatewayAnswer {
    uint64_t number = 0;
    std::string pass;
    Cause why = {};
    bool operator==(const GatewayAnswer&) const = default;
};
// The gateway says this to a node: somebody wants to reach it, so it opens a connection back that
// begins with this pass.
struct GatewayCall {
    std::string pass;
    bool operator==(const GatewayCall&) const = default;
};
struct ImageResult {
    JobId id;
    Epoch epoch;
    bool ok = false;
    std::string why;
    bool operator==(const ImageResult&) const = default;
};

// A new job. `token` is a random number of the caller: after a connection that broke before
// `submitted` came, the same request is sent again with `retry` set, and the job that has this
// token (and uid) already is the answer.
struct Submit {
    JobSpec spec;  // uid, gid and groups are replaced by what the kernel says of the caller
    JobTerms terms;
    std::string name;
    bool attach = false;
    uint64_t token = 0;
    bool retry = false;
    JobTies group = {};
    // Files at its home that take what it writes while nobody is attached; %j is its id, %a its
    // index in an array. err_file empty: the same as out_file. Both empty: none.
    std::string out_file = {}, err_file = {};
    bool files_said = false;  // else the spec's files are as its home is configured
    JobTries tries = {};
    bool operator==(const Submit&) const = default;
};
struct Submitted {
    JobId id;
    std::string waits;  // why it will, as far as this node knows now
    bool gangs =
        false;  // this node starts jobs of several components as one; versions before do not
    bool classes = false;  // the same for components that are not required
    bool layouts = false;  // the same for how components are to lie (JobTies::node, spread, pack)
    bool near = false;     // the same for JobTies::near
    bool operator==(const Submitted&) const = default;
};
// resume: the caller has each stream up to its offset and wants the rest; else it takes what is
// still kept. watch: the caller hears what becomes of the job, and takes none of its output.
struct Attach {
    JobId id;
    bool resume = false;
    uint64_t offset[2] = {0, 0};  // stdout, stderr
    bool watch = false;
    bool operator==(const Attach&) const = default;
};
// Input goes on at `input_offset` (what lies before it is safe), output at `offset`.
struct Attached {
    JobId id;
    JobPhase phase = JobPhase::waiting;
    bool tty = false;
    uint64_t input_offset = 0;
    uint64_t offset[2] = {0, 0};
    bool operator==(const Attached&) const = default;
};
// Says which of the terms change.
struct Change {
    enum Field : uint32_t {
        max_price = 1,
        budget = 2,
        memory_mb = 4,
        cpus = 8,
        finish = 16,
        strategy = 32,
        pace = 64,
        runtime = 128,     // field 9: the eighth is the home's own
        time_limit = 256,  // fields 11 and 12
        cpu_limit = 512,
        warning = 1024,  // fields 14 and 15
        needs = 2048,
        booking = 4096,  // fields 17 to 19, and 23
        resources = 8192,
        sites = 16384,         // field 24
        sites_prefer = 32768,  // fields 25 and 26
        sites_within = 65536,  // field 27
        all = 131071
    };
    JobId id;
    uint32_t fields = 0;
    JobTerms terms;  // what `fields` does not name is at its default
    bool operator==(const Change&) const = default;
};
// `terms` with the named fields replaced.
JobTerms changed(JobTerms terms, const Change& change);

struct Output {
    Stream stream = Stream::out;
    uint64_t offset = 0;
    std::string data;
    bool operator==(const Output&) const = default;
};
struct OutputAck {
    Stream stream = Stream::out;
    uint64_t offset = 0;
    bool operator==(const OutputAck&) const = default;
};
struct Input {
    uint64_t offset = 0;
    std::string data;
    bool eof = false;  // after `data`
    bool operator==(const Input&) const = default;
};
struct InputAck {
    uint64_t offset = 0;
    bool operator==(const InputAck&) const = default;
};
struct Winch {
    uint16_t rows = 0, cols = 0;
    bool operator==(const Winch&) const = default;
};
struct Signal {
    int32_t number = 0;
    bool operator==(const Signal&) const = default;
};
struct Notice {
    TellWhat kind = TellWhat::comment;
    std::string text;
    bool operator==(const Notice&) const = default;
};
// Tells what a job costs, whenever that changes.
struct Meter {
    JobPhase phase = JobPhase::waiting;
    NodeName where;       // empty: nowhere
    Money price;          // per CPU-hour, as the market told it last
    Money cost;           // so far
    int32_t cpus = 1;     // that it pays for
    bool counts = false;  // it runs: from now on the cost grows by the price
    bool operator==(const Meter&) const = default;
};
// The last frame about a job: every byte of its output was sent before.
struct Exit {
    int32_t wait_status = 0;  // as of waitpid; counts where `why` is empty
    bool cancelled = false;   // ended from outside
    std::string why;          // it did not run to its own end
    std::string summary;      // JSON, tools/common/replies.md
    bool operator==(const Exit&) const = default;
};

// The words of agents and srun, as SOUK_COMMON_WORDS.
// clang-format off
#define SOUK_AGENT_LISTED(X)                                                                      \
    /* the home of a job and its guest */                                                         \
    X(GuestCommand, guest_command, 48, list_bytes)          /* home to guest */                   \
    X(GuestEvent, guest_event, 49, small_bytes)             /* guest to home */                   \
    X(Expel, expel, 50, small_bytes)                        /* guest to home */                   \
    X(StdioData, stdio_data, 51, stdio_frame_bytes)         /* guest to home: what it wrote */    \
    X(StdioAck, stdio_ack, 52, small_bytes)                 /* home: safe up to this offset */    \
    X(StdioInput, stdio_input, 53, stdio_frame_bytes)       /* home: what it is to read */        \
    X(StdioInputAck, stdio_input_ack, 54, small_bytes)      /* guest to home */                   \
    X(StdioWinch, stdio_winch, 55, small_bytes)             /* home: the terminal's size */       \
    X(Heartbeat, heartbeat, 56, small_bytes)                /* guest to home, and its answer */   \
    /* on a connection of its own (role image): source to destination, then the image, unframed,  \
       and the pages that are not in it; back come what is wanted of these, and the result */     \
    X(ImageBegin, image_begin, 64, small_bytes)                                                   \
    X(ImageResult, image_result, 65, small_bytes)                                                 \
    X(PagesState, pages_state, 66, small_bytes)                                                   \
    /* instead of image_begin: memory ahead of the job's image, unframed */                       \
    X(PrecopyBegin, precopy_begin, 67, small_bytes)                                               \
    X(FilesBegin, files_begin, 68, small_bytes)             /* home to guest: files, unframed */  \
    /* on a connection of its own (role relay): a node and a gateway */                           \
    X(GatewayOffer, gateway_offer, 72, small_bytes)         /* to its own gateway */              \
    X(GatewayAsk, gateway_ask, 73, small_bytes)             /* to any gateway */                  \
    X(GatewayAnswer, gateway_answer, 74, small_bytes)       /* gateway to asker */                \
    X(GatewayCall, gateway_call, 75, small_bytes)           /* gateway to node */                 \
    /* srun and its home agentd, over a unix socket (the caller's identity is the kernel's word,  \
       SO_PEERCRED) */                                                                            \
    X(Submit, submit, 80, list_bytes)                                                             \
    X(Submitted, submitted, 81, small_bytes)                                                      \
    X(Attach, attach, 82, small_bytes)                                                            \
    X(Attached, attached, 83, small_bytes)                                                        \
    X(Output, output, 85, stdio_frame_bytes)                /* to srun: what the job wrote */     \
    X(OutputAck, output_ack, 86, small_bytes)               /* from srun: written up to there */  \
    X(Input, input, 87, stdio_frame_bytes)                  /* from srun: what it is to read */   \
    X(InputAck, input_ack, 88, small_bytes)                 /* to srun: need not be sent again */ \
    X(Winch, winch, 89, small_bytes)                                                              \
    X(Signal, signal, 90, small_bytes)                                                            \
    X(Notice, notice, 91, small_bytes)                      /* to srun: what became of the job */ \
    X(Exit, exit, 92, report_bytes)  /* to srun: it is finished and all its output was sent */    \
    X(Meter, meter, 93, small_bytes) /* to srun: what it costs */
// Change has a codec of its own: a term that does not change may be anything on the wire.
#define SOUK_AGENT_WORDS(X) SOUK_AGENT_LISTED(X) X(Change, change, 84, small_bytes)
// clang-format on

}  // namespace souk::wire
