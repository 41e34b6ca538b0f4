// SPDX-License-Identifier: GPL-2.0-or-later
// The client of a job's files (client.hpp) and their server at home (server.hpp) talk over one byte
// stream: heads of 24 bytes, little-endian, each with what the kernel's FUSE protocol
// (<linux/fuse.h>) says of one request or its answer. So nothing is translated on the way: the
// client relays what its kernel asks, and the server answers as a FUSE server would. Both ends are
// of one architecture, as a job's memory is. A head is checked before its body is read; the bodies
// are the business of session.hpp, which believes nothing.
//
// A request keeps its number (`seq`) when it is sent again after a broken connection. `acked` says
// below which number the client has all answers: the server keeps those that it may be asked for
// again.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

inline constexpr uint32_t data_bytes_max = 1 << 20;  // of one read or write
// A request with its names or data; the kernel asks for no more room than that.
inline constexpr uint32_t request_bytes_max = data_bytes_max + 8192;
inline constexpr uint32_t slots = 64;  // requests under way
inline constexpr uint32_t talk_version = 1;

enum class Kind : uint32_t {
    attach = 1,  // the first, from who has the socket: `seq` is the session's number
    hello,       // client: Hello
    welcome,     // server: Welcome
    request,     // client: fuse_in_header and what follows it
    leave,       // as attach: that session is over
    answer,      // server: fuse_out_header and what follows it; empty: nothing is to be told
    recall,      // server, to a client that can: Recall and a name (Cache::recall)
    prove,       // client, to a server that can: Prove; the server then says `content`
    content,     // server: Content, of a file that is opened next, or open
    known,       // client, to a server that can: since the stream began it has answered `seq`
                 // requests itself (now and then; for RequestCount)
    told,        // server, to a client that can: a request that it may make soon, and the answer;
                 // what is looked up and opened by it is the client's
};

struct Head {
    uint32_t bytes = 0;  // of what follows
    Kind kind{};
    uint64_t seq = 0;
    uint64_t acked = 0;  // of an answer: a Lease, or more; of a recall: 1: the name itself stays
};
static_assert(sizeof(Head) == 24);

// A lease says how long an answer may be used again when nobody recalls it (cache.hpp).
enum class Lease : uint64_t { none = 0, program, file };

// This comes with the lease of an answer to an open. It says that the file is not as the client was
// told last, so that what its kernel knows of the file, its length above all, is out of date. A
// client that does not know this value takes it for no lease. With the answer that grants a lock it
// says that others may have written to the file since it was read.
inline constexpr uint64_t file_has_changed = 1 << 8;

struct Hello {
    uint32_t version = talk_version;
    uint32_t uid = 0, gid = 0;  // who the job is where it runs
    uint32_t can = 0;           // 1: take recalls; 2: take `told`
};
struct Welcome {
    uint32_t version = talk_version;
    uint32_t known = 0;  // 1: the server has this session's files; else it begins. 2: it can prove;
                         // 4: it takes `known`; 8: it takes locks
};
struct Recall {
    uint64_t directory = 0;  // 0: everything
};
struct Prove {
    uint8_t nonce[32] = {};
};
// Names the content of a file that the server has open for the job. The node may have that content
// already (store.hpp).
struct ContentId {
    std::array<uint8_t, 32> digest{}, proof{};  // SHA-256 of it, and of the nonce and it
    uint64_t size = 0;
    bool operator==(const ContentId&) const = default;
};
struct Content {
    uint64_t node = 0;
    ContentId id;
    uint64_t mtime_s = 0, ctime_s = 0;
    uint32_t mtime_ns = 0, ctime_ns = 0;
};
inline constexpr uint32_t name_bytes_max = 255;
// This value stands in fuse_write_in.padding. If such a write is not done whole, the answer tells
// the error and not how far the write came. A server that does not know the value tells how far.
inline constexpr uint32_t write_whole = 1;
// This stands in fuse_lk_in.padding of an own request that lets a lock go. Nobody has heard that
// the request of that number got it, so what was held there before is held again. A server that
// does not know it lets all of the range go.
inline constexpr uint32_t undo_number(uint64_t unique) { return static_cast<uint32_t>(unique) | 1; }

// Takes heads and bodies out of a stream of bytes. Pure.
class Talk {
  public:
    struct Message {
        Head head;
        ByteView body;  // until the next call
    };
    // Returns the place for the next bytes of the stream; room_bytes() says how many may come.
    uint8_t* room();
    size_t room_bytes() const { return wanted_ - held_; }
    void took(size_t bytes) { held_ += bytes; }
    // Returns the message that is whole now; nothing: more is to be read. After an error the stream
    // cannot be read on.
    Result<std::optional<Message>> next();

  private:
    Bytes buffer_ = Bytes(sizeof(Head));
    size_t held_ = 0, wanted_ = sizeof(Head);
    bool given_ = false;
};

// Counts the requests of a stream of which it sees all bytes. Pure.
class RequestCount {
  public:
    // Returns how many requests begin in these bytes.
    uint64_t feed(ByteView bytes);
    // Returns how many requests the client has answered itself, as far as it has said.
    uint64_t known() const { return known_; }

  private:
    uint8_t head_[sizeof(Head)];
    size_t held_ = 0;
    uint64_t left_ = 0;  // of the present body
    uint64_t known_ = 0;
};

}  // namespace souk::files
