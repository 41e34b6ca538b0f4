// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/metrics_page.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "kernel/sys/net/socket.hpp"

namespace souk {
namespace {

Metric single(std::string name, std::string help, bool counts, double value) {
    return {std::move(name), std::move(help), counts, {{{}, value}}};
}

std::string response(const char* status, const char* type, const std::string& body) {
    return std::string("HTTP/1.1 ") + status + "\r\nContent-Type: " + type +
           "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" +
           body;
}

}  // namespace

Metric gauge(std::string name, std::string help, double value) {
    return single(std::move(name), std::move(help), false, value);
}
Metric counter(std::string name, std::string help, double value) {
    return single(std::move(name), std::move(help), true, value);
}

std::string metrics_text(const std::vector<Metric>& metrics) {
    std::vector<prometheus::MetricFamily> families;
    for (const Metric& m : metrics) {
        if (m.samples.empty()) continue;
        prometheus::MetricFamily family;
        family.name = m.name;
        family.help = m.help;
        family.type = m.counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
        for (const MetricSample& sample : m.samples) {
            prometheus::ClientMetric one;
            for (const auto& [name, value] : sample.labels) one.label.push_back({name, value});
            (m.counter ? one.counter.value : one.gauge.value) = sample.value;
            family.metric.push_back(std::move(one));
        }
        families.push_back(std::move(family));
    }
    return prometheus::TextSerializer().Serialize(families);
}

Status MetricsPage::listen(const std::string& text) {
    TRY_ASSIGN(const Address address, Address::parse(text));
    TRY_ASSIGN(Fd socket, listen_stream(address, 16));
    TRY_ASSIGN(const Address bound, Address::local(socket.get()));
    port_ = bound.port();
    TRY_ASSIGN(listener_,
               loop_.listen(std::move(socket), [this](Fd fd) { accept(std::move(fd)); }, {}));
    return {};
}

void MetricsPage::accept(Fd socket) {
    if (connections_.size() >= connections_max) return;  // closed unheard
    const uint64_t number = next_++;
    auto stream =
        loop_.stream(std::move(socket), {[this, number](ByteView bytes) { came(number, bytes); },
                                         [this, number] { close(number); },
                                         [this, number](const Error&) { close(number); },
                                         {}});
    if (!stream) return;
    Connection& c = connections_[number];
    c.stream = std::move(*stream);
    c.limit = loop_.after(patience, [this, number] { close(number); });
}

void MetricsPage::came(uint64_t number, ByteView bytes) {
    const auto it = connections_.find(number);
    if (it == connections_.end()) return;
    std::string& request = it->second.request;
    request.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (request.size() > request_bytes_max) return close(number);
    if (request.find("\r\n\r\n") != std::string::npos) answer(number);
}

void MetricsPage::answer(uint64_t number) {
    Connection& c = connections_.at(number);
    const std::string line = c.request.substr(0, c.request.find("\r\n"));
    constexpr const char* plain = "text/plain; charset=utf-8";
    std::string text;
    if (!line.starts_with("GET "))
        text = response("405 Method Not Allowed", plain, "only GET is known here\n");
    else if (!line.starts_with("GET /metrics ") && !line.starts_with("GET /metrics?"))
        text = response("404 Not Found", plain, "there is /metrics\n");
    else
        text = response("200 OK", "text/plain; version=0.0.4; charset=utf-8",
                        metrics_text(collect_()));
    Stream stream = std::move(c.stream);
    loop_.defer([this, number] { close(number); });
    if (stream.send(Bytes(text.begin(), text.end()))) stream.close_after_send(patience);
}

// Closes later, because this may be called from within one of the connection's own callbacks, which
// must not be destroyed.
void MetricsPage::close(uint64_t number) {
    loop_.defer([this, number] { connections_.erase(number); });
}

}  // namespace souk
