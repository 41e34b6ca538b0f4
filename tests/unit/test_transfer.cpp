// SPDX-License-Identifier: GPL-2.0-or-later
// An image that leaves, and a destination that says in its welcome what it knows. Method: a
// connection that hears the sender's words and sees which bytes follow.
#include "agentd/daemon/transfer.hpp"

#include "agentd/core/files_choice.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"

namespace souk::unit {
namespace {

struct Destination {
    Loop& loop;
    uint32_t knows;
    std::string at;
    Listener listener;
    std::unique_ptr<wire::Channel> channel;
    size_t bytes = 0;

    Destination(Loop& on, uint32_t known) : loop(on), knows(known) {
        const auto any = Address::parse("127.0.0.1:0");
        OK(any);
        auto fd = listen_stream(*any);
        OK(fd);
        const auto bound = Address::local(fd->get());
        OK(bound);
        at = bound->text();
        auto made = loop.listen(
            std::move(*fd), [this](Fd socket) { came(std::move(socket)); }, [](const Error&) {});
        OK(made);
        listener = std::move(*made);
    }
    void came(Fd socket) {
        wire::ChannelHandlers handlers;
        handlers.on_frame = [this](const wire::Frame& f) {
            if (f.type == wire::frame::hello) {
                wire::Welcome welcome{wire::protocol_version, "n2", {}, true};
                welcome.knows = knows;
                OK(channel->send(wire::frame::welcome, wire::pack(welcome)));
            } else {
                ck_assert(f.type == wire::frame::image_begin);
                channel->receive_raw([this](ByteView some) { bytes += some.size(); });
            }
        };
        handlers.on_closed = [](const Error&) {};
        wire::ChannelOptions options;
        options.words = wire::agent_words;
        options.side = wire::Side::acceptor;
        auto opened = wire::Channel::open(loop, std::move(socket), std::move(handlers), options);
        OK(opened);
        channel = std::move(*opened);
    }
};

}  // namespace

START_TEST(locks_of_a_home_s_files_go_to_no_node_that_would_leave_them_behind) {
    for (const bool locks : {false, true}) {
        for (const uint32_t knows : {0U, knows_own_tmp, knows_home_locks}) {
            TempDir dir;
            dir.write("image", "bytes");
            Loop loop = open_loop();
            Destination destination(loop, knows);
            Ways ways(loop);
            Transfers transfers(loop, {"n1", "127.0.0.1:1", nullptr, &ways}, {});
            Transfers::Cargo cargo;
            cargo.image = std::move(dir.fd);
            cargo.home_locks = locks;
            std::string why;
            transfers.send({{"n1", 1}, {1}}, {{"n1", 1}, {2}}, {"n2", destination.at},
                           std::move(cargo), [&](const Result<Manifest>& sent) {
                               ck_assert(!sent);
                               why = sent.error().message;
                           });
            if (locks && knows != knows_home_locks) {
                UNTIL(loop, !why.empty());
                ck_assert(why.find("locks of its home's files, and n2 is of an older version") !=
                          std::string::npos);
                ck_assert_uint_eq(destination.bytes, 0);
            } else {
                UNTIL(loop, destination.bytes > 0);
                ck_assert(why.empty());
            }
        }
    }
}
END_TEST

UNIT_SUITE(transfer, locks_of_a_home_s_files_go_to_no_node_that_would_leave_them_behind);

}  // namespace souk::unit
