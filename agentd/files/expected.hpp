// SPDX-License-Identifier: GPL-2.0-or-later
// Expected: files that somebody is about to look up one after the other (CRIU, at a dump or a
// restore of a job with many open files). The client asks its server for all of them at once, so
// the kernel's requests find the answers in the Cache: names and attributes; of files that are to
// be opened an open file each, of others what is said of their file system. Of a job that comes
// from another node the server has told most of it by then (Session::open_as).
//
// Owned by the client. What is not known at home, or comes late, the kernel asks for as always.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/files/cache.hpp"
#include "agentd/files/upstream.hpp"

namespace souk::files {

class Expected {
  public:
    static constexpr size_t list_bytes_max = 1 << 20, paths_max = 4096;
    static constexpr size_t under_way_max = slots / 2;

    Expected(Slots& requests, Cache& cache, Upstream& upstream)
        : slots_(requests), cache_(cache), upstream_(upstream) {}

    // Expects these files in place of earlier ones. The list has for each file the flags of its
    // open(2), in octal, a blank, its path in the job's tree, and a zero. `opens`: the files are
    // opened, too.
    void begin(std::string_view list, bool opens);
    // Begins with such a list that lies in a file.
    void begin(const Fd& list, bool opens);
    // Asks for what may be asked for now.
    void ask(int64_t now_ns);
    // The answer to that number, of this request. False: it is none of these.
    bool took(uint64_t seq, ByteView request, ByteView answer, Lease lease, int64_t now_ns);
    // The server has looked up or opened something before this client asked: a request, and its
    // answer.
    void told(ByteView both, Lease lease, int64_t now_ns);
    // There is a new stream. Answers to questions on the old one are not waited for.
    void forget();
    bool idle() const { return todo_.empty() && asked_.empty(); }

  private:
    struct Place {
        uint64_t node = 0;  // once it is known
        uint32_t parent = 0;
        std::string name;
        std::vector<uint32_t> below;
        bool is_file = false;         // of the list
        std::vector<uint32_t> opens;  // the flags
    };
    enum class What : uint8_t { name, open, file_system };
    struct Todo {
        uint32_t place = 0;
        What what = What::name;
        uint32_t flags = 0;
    };
    void add(std::string_view path, uint32_t flags, bool opens);
    void found(uint32_t place, uint64_t node);
    bool known(const Todo& todo, int64_t now_ns);
    uint64_t learn(ByteView request, ByteView answer, Lease lease, int64_t now_ns);
    Bytes request_of(const Todo& todo) const;

    Slots& slots_;
    Cache& cache_;
    Upstream& upstream_;
    std::vector<Place> places_;  // the first: the root
    std::map<std::pair<uint32_t, std::string>, uint32_t> by_name_;
    std::deque<Todo> todo_;
    std::map<uint64_t, Todo> asked_;                           // by the number of the request
    std::map<std::pair<uint64_t, uint32_t>, size_t> offered_;  // by node and flags: of those known
};

}  // namespace souk::files
