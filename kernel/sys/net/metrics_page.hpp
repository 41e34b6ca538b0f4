// SPDX-License-Identifier: GPL-2.0-or-later
// MetricsPage: a daemon's figures for Prometheus, over HTTP on an address of its own. It knows one
// page (/metrics) and one method; what asks for another is told so and closed. The figures are
// taken when they are asked for. Bounds: connections at once, bytes and time of a request. It runs
// on the daemon's loop; prometheus-cpp writes the text.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

struct MetricSample {
    std::vector<std::pair<std::string, std::string>> labels;
    double value = 0;
};
struct Metric {
    std::string name, help;
    bool counter = false;  // only grows while the daemon lives; else a gauge
    std::vector<MetricSample> samples;
};
// These make a metric of one value.
Metric gauge(std::string name, std::string help, double value);
Metric counter(std::string name, std::string help, double value);

// Writes the text format of Prometheus, version 0.0.4.
std::string metrics_text(const std::vector<Metric>& metrics);

class MetricsPage {
  public:
    static constexpr size_t connections_max = 16, request_bytes_max = 8'192;
    static constexpr Nanos patience = Nanos::from_s(5);

    using Collect = std::function<std::vector<Metric>()>;
    MetricsPage(Loop& loop, Collect collect) : loop_(loop), collect_(std::move(collect)) {}
    MetricsPage(const MetricsPage&) = delete;
    MetricsPage& operator=(const MetricsPage&) = delete;
    // "host:port". Errors: it is none, or in use.
    Status listen(const std::string& address);
    uint16_t port() const { return port_; }

  private:
    struct Connection {
        Stream stream;
        Timer limit;
        std::string request;
    };
    void accept(Fd socket);
    void came(uint64_t number, ByteView bytes);
    void answer(uint64_t number);
    void close(uint64_t number);

    Loop& loop_;
    Collect collect_;
    Listener listener_;
    uint16_t port_ = 0;
    uint64_t next_ = 1;
    std::map<uint64_t, Connection> connections_;
};

}  // namespace souk
