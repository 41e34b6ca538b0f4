// SPDX-License-Identifier: GPL-2.0-or-later
#include "bpf/cpu_wakers.hpp"

#include <bpf/bpf.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace souk {
namespace {

// An event wakes a waiting thread only if it is mapped. Nobody reads the page in which the programs
// write around.
size_t mapped_bytes() { return 2 * static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

// Waits until `end` is readable. If the kernel takes the CPU away, it moves the thread elsewhere.
void wake_and_sleep(int event, int end) {
    pollfd watched[] = {{event, POLLIN, 0}, {end, POLLIN, 0}};
    while (watched[1].revents == 0) {
        if (::poll(watched, 2, -1) < 0 && errno != EINTR) return;
        if ((watched[0].revents & ~POLLIN) != 0) watched[0].fd = -1;  // no more to be had
    }
}

// Leaves all signals to the caller's own thread.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_{};
};

struct SmallStack {
    pthread_attr_t attributes{};
    SmallStack() {
        ::pthread_attr_init(&attributes);
        // glibc's own data of a thread lies on its stack, too.
        ::pthread_attr_setstacksize(&attributes,
                                    static_cast<size_t>(PTHREAD_STACK_MIN) + (size_t{48} << 10));
    }
    SmallStack(const SmallStack&) = delete;
    SmallStack& operator=(const SmallStack&) = delete;
    ~SmallStack() { ::pthread_attr_destroy(&attributes); }
};

}  // namespace

struct CpuWakers::Waker {
    Fd event;
    int end = -1;
    void* mapped = MAP_FAILED;
    pthread_t thread{};
    bool started = false;

    Waker() = default;
    Waker(const Waker&) = delete;
    Waker& operator=(const Waker&) = delete;
    ~Waker() {
        if (started) ::pthread_join(thread, nullptr);
        if (mapped != MAP_FAILED) ::munmap(mapped, mapped_bytes());
    }
    static void* run(void* self) {
        const auto* const waker = static_cast<const Waker*>(self);
        wake_and_sleep(waker->event.get(), waker->end);
        return nullptr;
    }
};

Status CpuWakers::add(int events, size_t cpu, const OpenCpuEvent& open) {
    if (cpu >= CPU_SETSIZE) return {};
    auto waker = std::make_unique<Waker>();
    waker->end = end_.get();
    auto event = open(cpu, {});
    if (!event && event.error().code == ENODEV) return {};
    if (!event) return tl::unexpected(event.error());
    waker->event = std::move(*event);
    waker->mapped = ::mmap(nullptr, mapped_bytes(), PROT_READ, MAP_SHARED, waker->event.get(), 0);
    if (waker->mapped == MAP_FAILED) return fail_errno("map the event of a CPU", errno);

    SmallStack stack;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ::pthread_attr_setaffinity_np(&stack.attributes, sizeof set, &set);
    const SignalsBlocked blocked;
    const int error = ::pthread_create(&waker->thread, &stack.attributes, Waker::run, waker.get());
    if (error != 0) return fail_errno("begin the thread of a CPU", error);
    waker->started = true;
    ::pthread_setname_np(waker->thread, "souk-giveway");

    const auto key = static_cast<uint32_t>(cpu);
    const int number = waker->event.get();
    wakers_.push_back(std::move(waker));
    if (const int set_error = bpf_map_update_elem(events, &key, &number, BPF_ANY); set_error != 0)
        return fail_errno("give the event of a CPU to the load programs", -set_error);
    return {};
}

Result<CpuWakers> CpuWakers::start(int events, size_t cpus, const OpenCpuEvent& open) {
    CpuWakers all;
    all.end_ = Fd(::eventfd(0, EFD_CLOEXEC));
    if (!all.end_) return fail_errno("make an event to end threads by", errno);
    for (size_t cpu = 0; cpu < cpus; ++cpu) TRY(all.add(events, cpu, open));
    return all;
}

CpuWakers::CpuWakers() = default;
CpuWakers::CpuWakers(CpuWakers&&) noexcept = default;
CpuWakers::~CpuWakers() { stop(); }

CpuWakers& CpuWakers::operator=(CpuWakers&& other) noexcept {
    if (this == &other) return *this;
    stop();
    end_ = std::move(other.end_);
    wakers_ = std::move(other.wakers_);
    return *this;
}

// The map keeps the events until it is closed, and they wake nobody.
void CpuWakers::stop() {
    if (!end_) return;
    const uint64_t one = 1;
    (void)!::write(end_.get(), &one, sizeof one);
    wakers_.clear();
    end_.reset();
}

}  // namespace souk
