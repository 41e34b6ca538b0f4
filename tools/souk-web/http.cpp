// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/http.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/base/time.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk::tools::web {
namespace {

constexpr Nanos request_time_max = Nanos::from_s(10), idle_max = Nanos::from_s(15),
                write_time_max = Nanos::from_s(10);
constexpr int requests_max = 1'000;  // of one connection

// Too many are here: this one is told so without being listened to.
thread_local bool refused = false;

bool ready(int fd, short events, Nanos until) {
    pollfd one{fd, events, 0};
    for (;;) {
        const Nanos left = until - monotonic_now();
        if (left.ns <= 0) return false;
        const int n = ::poll(&one, 1, static_cast<int>(left.ns / 1'000'000 + 1));
        if (n < 0 && errno == EINTR) continue;
        return n > 0 && (one.revents & events) != 0;
    }
}

// One connection. It reads in pieces, and no more than a request may have.
class Wire : public httplib::Stream {
  public:
    explicit Wire(int fd) : fd_(fd) {}

    // Waits for the next request's first byte.
    bool next_request() {
        left_ = request_bytes_max;
        if (at_ == held_ && !ready(fd_, POLLIN, monotonic_now() + idle_max)) return false;
        until_ = monotonic_now() + request_time_max;
        return true;
    }
    bool is_readable() const override {
        return at_ < held_ || (left_ > 0 && ready(fd_, POLLIN, until_));
    }
    // Also returns false when the other side has closed its half, because nobody watches any more.
    bool is_writable() const override {
        pollfd one{fd_, POLLRDHUP, 0};
        if (::poll(&one, 1, 0) > 0) return false;
        return ready(fd_, POLLOUT, monotonic_now() + write_time_max);
    }
    ssize_t read(char* to, size_t size) override {
        if (at_ == held_) {
            if (left_ == 0 || !ready(fd_, POLLIN, until_)) return -1;
            const ssize_t n = ::recv(fd_, buffer_, std::min(sizeof buffer_, left_), 0);
            if (n <= 0) return n;
            at_ = 0;
            held_ = static_cast<size_t>(n);
            left_ -= held_;
        }
        const size_t n = std::min(size, held_ - at_);
        std::copy_n(buffer_ + at_, n, to);
        at_ += n;
        return static_cast<ssize_t>(n);
    }
    ssize_t write(const char* from, size_t size) override {
        const Nanos until = monotonic_now() + write_time_max;
        size_t sent = 0;
        while (sent < size) {
            if (!ready(fd_, POLLOUT, until)) return -1;
            const ssize_t n = ::send(fd_, from + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
            if (n < 0) return -1;
            sent += static_cast<size_t>(n);
        }
        return static_cast<ssize_t>(size);
    }
    void get_remote_ip_and_port(std::string&, int&) const override {}
    void get_local_ip_and_port(std::string&, int&) const override {}
    socket_t socket() const override { return fd_; }

  private:
    int fd_;
    char buffer_[4'096];
    size_t at_ = 0, held_ = 0, left_ = 0;
    Nanos until_;
};

// Begins a thread when it is needed, up to as many as there may be connections.
class Threads : public httplib::TaskQueue {
  public:
    // Newer versions of the library are told whether it is taken.
    using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue(nullptr));
    Taken enqueue(std::function<void()> task) override {
        {
            const std::lock_guard lock(mutex_);
            if (idle_ > tasks_.size() || threads_.size() < connections_max) {
                if (idle_ <= tasks_.size()) threads_.emplace_back([this] { work(); });
                tasks_.push_back(std::move(task));
                more_.notify_one();
                return Taken(true);
            }
        }
        refused = true;
        task();
        refused = false;
        return Taken(true);
    }
    void shutdown() override {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
            more_.notify_all();
        }
        for (std::thread& thread : threads_) thread.join();
    }

  private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            ++idle_;
            more_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
            --idle_;
            if (tasks_.empty()) return;
            const auto task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable more_;
    std::deque<std::function<void()>> tasks_;
    std::vector<std::thread> threads_;
    size_t idle_ = 0;
    bool ends_ = false;
};

}  // namespace

Http::Http() {
    new_task_queue = [] { return new Threads; };
    // This replaces the library's SO_REUSEPORT, so that a second server on the port is refused.
    set_socket_options([](socket_t socket) {
        const int yes = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
}

bool Http::process_and_close_socket(socket_t socket) {
    if (refused) {
        constexpr std::string_view busy =
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 43\r\n"
            "Content-Type: text/plain\r\nConnection: close\r\n\r\n"
            "souk-web has too many connections just now\n";
        ::send(socket, busy.data(), busy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        // We read what has come, because closing the socket with unread bytes would take the answer
        // back.
        char rest[4'096];
        ::recv(socket, rest, sizeof rest, MSG_DONTWAIT);
        ::shutdown(socket, SHUT_RDWR);
        ::close(socket);
        return false;
    }
    Wire wire(socket);
    bool closed = false;
    // Newer versions of the library take addresses, too, which no page shows.
    const auto answer = [&](auto& stream, bool last) {
        if constexpr (requires { this->process_request(stream, last, closed, nullptr); })
            return this->process_request(stream, last, closed, nullptr);
        else
            return this->process_request(stream, "", 0, "", 0, last, closed, nullptr);
    };
    for (int left = requests_max; left > 0 && !closed && is_running() && wire.next_request();
         --left)
        if (!answer(wire, left == 1)) break;
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return true;
}

}  // namespace souk::tools::web
