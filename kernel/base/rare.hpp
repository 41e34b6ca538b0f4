// SPDX-License-Identifier: GPL-2.0-or-later
// Rare and Sparse hold a value that most of many things do not have: then they are one word, which
// is null. Rare is an optional. Sparse is a value: where it is not held it is read as a default
// one. Both are copied and compared with their owners.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace souk {

template <class T>
class Rare {
  public:
    Rare() = default;
    Rare(T value) : value_(std::make_unique<T>(std::move(value))) {}  // NOLINT: as an optional
    Rare(Rare&&) noexcept = default;
    Rare(const Rare& o) : value_(o.value_ ? std::make_unique<T>(*o.value_) : nullptr) {}
    Rare& operator=(Rare o) noexcept {
        value_ = std::move(o.value_);
        return *this;
    }

    bool has_value() const { return value_ != nullptr; }
    explicit operator bool() const { return has_value(); }
    T& operator*() const { return *value_; }
    T* operator->() const { return value_.get(); }
    T& emplace() { return *(value_ = std::make_unique<T>()); }
    void reset() { value_.reset(); }
    bool operator==(const Rare& o) const {
        return value_ && o.value_ ? *value_ == *o.value_ : value_ == o.value_;
    }
    bool operator==(const T& o) const { return value_ && *value_ == o; }

  private:
    std::unique_ptr<T> value_;
};

template <class T>
class Sparse {
  public:
    Sparse() = default;
    Sparse(T value) { *this = std::move(value); }  // NOLINT: it is such a value
    template <class U>
    requires((std::is_same_v<U, std::string> ||
              std::is_same_v<U, const char*>)&&std::is_constructible_v<T, U> &&
             !std::is_same_v<T, U>) Sparse(U text)  // NOLINT: the same
        : Sparse(T(std::move(text))) {}
    Sparse(Sparse&&) noexcept = default;
    Sparse(const Sparse&) = default;
    Sparse& operator=(Sparse&&) noexcept = default;
    Sparse& operator=(const Sparse&) = default;
    template <class U = T>
    requires(std::is_constructible_v<T, U> &&
             !std::is_same_v<std::remove_cvref_t<U>, Sparse>) Sparse&
    operator=(U&& given) {
        T value(std::forward<U>(given));
        if (value == T{})
            value_.reset();
        else if (value_)
            *value_ = std::move(value);
        else
            value_ = std::move(value);
        return *this;
    }

    const T& operator*() const { return value_ ? *value_ : none(); }
    const T* operator->() const { return &**this; }
    operator const T&() const { return **this; }  // NOLINT: it is such a value
    // Returns the value to be changed. If it has become a default one again, it keeps its place.
    T& edit() { return value_ ? *value_ : value_.emplace(); }
    T* stored() { return value_ ? &*value_ : nullptr; }  // to be changed if it is not a default one
    void clear() { value_.reset(); }
    bool empty() const { return (**this).empty(); }
    friend bool operator==(const Sparse& a, const Sparse& b) { return *a == *b; }
    friend bool operator==(const Sparse& a, const T& b) { return *a == b; }
    friend bool operator==(const Sparse& a,
                           const char* b) requires std::is_constructible_v<T, const char*> {
        return *a == b;
    }

  private:
    static const T& none() {
        static const T value{};
        return value;
    }
    Rare<T> value_;
};

}  // namespace souk
