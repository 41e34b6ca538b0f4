// SPDX-License-Identifier: GPL-2.0-or-later
// souk-web over a real marketd whose database holds so many nodes, live and finished jobs: how long
// each page takes from the request to its last byte, when nothing of it was asked for in the last
// second (souk-web keeps answers for so long), and what a board costs that is open: processor time
// of marketd and souk-web while one watcher loads it anew each 2 seconds; and what mmon costs, once
// and on a terminal of 80 by 24. The nodes are known and not connected; a row of theirs is the
// same. JSON on stdout. Usage: bench_web [NODES [FINISHED [LIVE]]]
#include <arpa/inet.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>

#include "kernel/base/json.hpp"
#include "market/store/finished.hpp"
#include "market/store/receipts.hpp"
#include "market/store/records.hpp"
#include "tests/bench/market_process.hpp"

using namespace souk;
using namespace souk::bench;
using market::JobRecord;

namespace {

std::string node_name(size_t i) { return "n" + std::to_string(i % 10'000'000 + 1); }

void must(const Status& status) {
    if (!status) fatal(status.error().message);
}

void fill(const std::string& dir, size_t nodes, size_t finished, size_t live) {
    std::filesystem::create_directory(dir);
    StateDb db = value(StateDb::open(dir, market_schema_version));
    for (size_t i = 0; i < nodes; ++i) {
        market::NodeRecord n;
        n.node = node_name(i);
        n.address = "10.0.0.1:1";
        n.has_report = n.report.on_market = true;
        n.report.node = n.node;
        n.report.reserve = Money::units(1);
        n.report.speed = 100;
        n.report.cpus = 16;
        n.report.memory_mb = n.report.free_mb = 64'000;
        db.put(kind_node, n.node, wire::pack(n));
    }
    must(db.commit());
    FinishedJobs jobs = value(FinishedJobs::open(db));
    const auto now = Nanos::from_s(::time(nullptr));
    for (size_t i = 1; i <= finished + live; ++i) {
        JobRecord r;
        r.report.id = {node_name(i % nodes), i};
        r.report.user = "user" + std::to_string(i % 300);
        r.report.uid = static_cast<uint32_t>(1'000 + i % 300);
        r.report.name = "night";
        r.report.command = "./simulate --seed " + std::to_string(i);
        r.report.terms.max_price = Money::units(40);
        r.report.places = {node_name(i * 7 % nodes)};
        r.report.submitted = now - Nanos::from_s(static_cast<int64_t>(finished + live - i));
        if (i > finished) {
            r.report.phase = JobPhase::waiting;
            db.put(kind_job, r.report.id.text(), wire::pack(r));
        } else {
            r.report.phase = JobPhase::finished;
            r.finish_seq = i;
            r.ended = r.report.submitted + Nanos::from_s(60);
            jobs.append(r);
        }
        if (i % 50'000 == 0) must(db.commit());
    }
    must(db.commit());
}

std::string program(const char* name) {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin" /
           name;
}

// The CPU time that all threads of a process have used, in seconds.
double cpu_of(pid_t pid) {
    const std::string stat = file_text("/proc/" + std::to_string(pid) + "/stat");
    std::istringstream words(stat.substr(stat.rfind(')') + 2));
    std::string word;
    double ticks = 0;
    for (int i = 0; i < 13 && words >> word; ++i)
        if (i >= 11) ticks += std::atof(word.c_str());
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Runs mmon on a terminal for `span`, and returns its CPU time in percent of a processor.
double mmon_percent(const std::string& socket, Nanos span) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = 80;
    int terminal = -1;
    const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
    if (pid < 0) fatal("forkpty");
    if (pid == 0) {
        ::setenv("TERM", "xterm", 1);
        ::execl(program("mmon").c_str(), "mmon", "--socket", socket.c_str(), nullptr);
        ::_exit(127);
    }
    const Nanos from = Loop::now();
    char piece[65'536];
    for (Nanos left = span; left.ns > 0; left = span - (Loop::now() - from)) {
        pollfd ready{terminal, POLLIN, 0};
        if (::poll(&ready, 1, static_cast<int>(left.ms()) + 1) > 0 &&
            ::read(terminal, piece, sizeof piece) <= 0)
            fatal("mmon has ended");
    }
    const double percent = 100 * cpu_of(pid) / (Loop::now() - from).seconds();
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::close(terminal);
    return percent;
}

// mmon --once: processor time, milliseconds.
double mmon_once_ms(const std::string& socket) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
        ::dup2(nowhere, 1);
        ::execl(program("mmon").c_str(), "mmon", "--once", "--socket", socket.c_str(), nullptr);
        ::_exit(127);
    }
    int status = 0;
    rusage used{};
    if (::wait4(pid, &status, 0, &used) != pid || status != 0) fatal("mmon --once fails");
    const auto ms = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
    };
    return ms(used.ru_utime) + ms(used.ru_stime);
}

class Web {
  public:
    explicit Web(const std::string& socket) {
        int ends[2];
        if (::pipe(ends) != 0) fatal("pipe");
        pid = ::fork();
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::dup2(ends[1], 1);
            ::execl(program("souk-web").c_str(), "souk-web", "--open", "--listen", "127.0.0.1:0",
                    "--socket", socket.c_str(), nullptr);
            ::_exit(127);
        }
        ::close(ends[1]);
        char text[256] = {};
        if (::read(ends[0], text, sizeof text - 1) <= 0) fatal("souk-web does not start");
        port = std::atoi(std::strrchr(text, ':') + 1);
    }
    ~Web() {
        ::kill(pid, SIGTERM);
        ::waitpid(pid, nullptr, 0);
    }
    // Milliseconds to the last byte; `bytes`: how many came.
    double get_ms(const std::string& path, size_t& bytes) const {
        const Nanos from = Loop::now();
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<uint16_t>(port));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) fatal("connect");
        const std::string ask = "GET " + path +
                                " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                                "\r\nConnection: close\r\n\r\n";
        if (::send(fd, ask.data(), ask.size(), 0) < 0) fatal("send");
        std::string all;
        char piece[65'536];
        for (ssize_t n = 0; (n = ::recv(fd, piece, sizeof piece, 0)) > 0;)
            all.append(piece, static_cast<size_t>(n));
        ::close(fd);
        if (!all.starts_with("HTTP/1.1 200")) fatal(path + ": " + all.substr(0, 300));
        bytes = all.size();
        return (Loop::now() - from).ms();
    }
    double cpu_s() const { return cpu_of(pid); }

    pid_t pid = 0;
    int port = 0;
};

void measure(JsonWriter& w, const Web& web, const std::string& path) {
    constexpr int rounds = 7;
    std::vector<double> spans;
    size_t bytes = 0;
    for (int i = 0; i < rounds; ++i) {
        ::poll(nullptr, 0, 1'100);  // souk-web forgets
        spans.push_back(web.get_ms(path, bytes));
    }
    std::sort(spans.begin(), spans.end());
    w.begin_object().field("page", path).field("median_ms", spans[rounds / 2]);
    w.field("most_ms", spans.back()).field("bytes", bytes).end_object();
}

}  // namespace

int main(int argc, char** argv) {
    const auto number = [&](int i, size_t otherwise) {
        return argc > i ? static_cast<size_t>(std::atol(argv[i])) : otherwise;
    };
    const size_t nodes = number(1, 10'000), finished = number(2, 1'000'000),
                 live = number(3, 1'000);
    if (nodes == 0) {
        std::fprintf(stderr, "usage: bench_web [NODES [FINISHED [LIVE]]]\n");
        return 2;
    }
    MarketProcess market("finished_max = " + std::to_string(finished + 1) + "\n");
    fill(market.dir + "/state", nodes, finished, live);
    const double start_s = market.start();
    const Web web(market.dir + "/m.sock");
    JsonWriter w;
    w.begin_object().field("nodes", nodes).field("finished", finished).field("live", live);
    w.field("marketd_start_s", start_s).key("pages").begin_array();
    for (const char* path : {"/", "/nodes", "/jobs", "/history", "/history?user=user7", "/time",
                             "/ledger", "/report", "/node/n7"})
        measure(w, web, path);
    w.end_array();
    const double market_before = market.cpu_s(), web_before = web.cpu_s();
    constexpr int loads = 10;
    const Nanos from = Loop::now();
    size_t bytes = 0;
    for (int i = 0; i < loads; ++i) {
        web.get_ms("/", bytes);
        ::poll(nullptr, 0, 2'000);
    }
    const double s = (Loop::now() - from).seconds();
    w.field("board_open_marketd_cpu_percent", 100 * (market.cpu_s() - market_before) / s);
    w.field("board_open_souk_web_cpu_percent", 100 * (web.cpu_s() - web_before) / s);
    w.field(
        "souk_web_rss_kib",
        std::atol(file_text("/proc/" + std::to_string(web.pid) + "/statm")
                      .substr(file_text("/proc/" + std::to_string(web.pid) + "/statm").find(' '))
                      .c_str()) *
            4);
    const double marketd_before = market.cpu_s();
    const std::string socket = market.dir + "/m.sock";
    constexpr Nanos mmon_span = Nanos::from_s(30);
    w.field("mmon_cpu_percent", mmon_percent(socket, mmon_span));
    w.field("mmon_marketd_cpu_percent",
            100 * (market.cpu_s() - marketd_before) / mmon_span.seconds());
    w.field("mmon_once_cpu_ms", mmon_once_ms(socket));
    std::printf("%s\n", w.end_object().take().c_str());
    return 0;
}
