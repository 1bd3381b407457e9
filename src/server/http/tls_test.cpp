// Limits of connections that are about to speak TLS. tests/api/test_tls.py has real clients.
#include "server/http/tls.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <csignal>
#include <memory>
#include <utility>

#include "server/http/test_http_server.h"
#include "server/test_client.h"
#include "server/test_eventually.h"

namespace quire::server::http {
namespace {

using std::chrono::milliseconds;

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

// A key and a certificate for it.
PemFile make_pem() {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  PEM_write_bio_X509(bio.get(), certificate.get());
  return {"pem", text_of(bio.get())};
}

// What a client that is about to speak TLS begins with, but for most of it.
const std::string kBeginning("\x16\x03\x01\x02\x00", 5);

class TlsTest : public HttpServerTest {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
  void start_tls(const std::function<void(HttpOptions&)>& change = {}) {
    start([&](HttpOptions& options) {
      const PemFile pem = make_pem();
      options.tls = load_tls(pem, pem);
      if (change) change(options);
    });
  }
};

TEST_F(TlsTest, HandshakesHaveATimeLimit) {
  start_tls([](HttpOptions& options) { options.header_timeout = milliseconds(200); });
  TestClient silent(port_), slow(port_);
  slow.send(kBeginning);
  EXPECT_TRUE(silent.closed_by_server());
  EXPECT_TRUE(slow.closed_by_server());
  TestClient dripping(port_);  // each byte in time, the whole is not
  dripping.send(kBeginning);
  for (int i = 0; i < 10'000 && !dripping.has_input(); ++i) {
    dripping.try_send("x");
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(dripping.closed_by_server());
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

// A client inside TLS whose records the test sends as it likes.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port)
      : bare(port),
        context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
        ssl_(SSL_new(context_.get()), SSL_free) {
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl_.get());
    while (SSL_do_handshake(ssl_.get()) != 1) {
      bare.send(take_output());
      if (!take_input()) throw std::runtime_error("no handshake");
    }
    bare.send(take_output());
  }

  // A record that holds `text`.
  std::string record_of(const std::string& text) {
    SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size()));
    return take_output();
  }
  // All that is sent until the connection ends, or there is `text` in it.
  std::string receive(const std::string& text = "") {
    std::string all;
    for (;;) {
      char piece[4096];
      const int n = SSL_read(ssl_.get(), piece, sizeof piece);
      if (n > 0) all.append(piece, static_cast<size_t>(n));
      if (!text.empty() && all.find(text) != std::string::npos) return all;
      if (n <= 0 && !take_input()) return all;
    }
  }

  TestClient bare;

 private:
  std::string take_output() {
    const std::string out = text_of(SSL_get_wbio(ssl_.get()));
    (void)BIO_reset(SSL_get_wbio(ssl_.get()));
    return out;
  }
  bool take_input() {
    if (!bare.read_some()) return false;
    const std::string in = std::exchange(bare.received(), {});
    BIO_write(SSL_get_rbio(ssl_.get()), in.data(), static_cast<int>(in.size()));
    return true;
  }

  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
};

// A record that does not come to its end is a request that does not: between requests a client may
// be silent for longer.
TEST_F(TlsTest, RecordsHaveTheTimeLimitOfHeads) {
  start_tls([](HttpOptions& options) { options.header_timeout = milliseconds(300); });
  TlsClient silent(port_), dripping(port_);
  // Behind an answer nothing else is on its way: the server sends tickets after the handshake.
  dripping.bare.send(dripping.record_of(get_text("/first")));
  EXPECT_EQ(dripping.receive("/first").substr(0, 13), "HTTP/1.1 200 ");
  const std::string record = dripping.record_of(std::string(16'000, 'x'));
  for (size_t i = 0; i < record.size() - 1 && !dripping.bare.has_input(); ++i) {
    dripping.bare.try_send(record.substr(i, 1));
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(dripping.receive().substr(0, 13), "HTTP/1.1 408 ");
  silent.bare.send(silent.record_of(get_text("/still")));
  EXPECT_EQ(silent.receive("/still").substr(0, 13), "HTTP/1.1 200 ");
}

TEST_F(TlsTest, HandshakesGiveRoom) {
  start_tls([](HttpOptions& options) { options.max_connections = 8; });
  std::vector<std::unique_ptr<TestClient>> held;
  for (int i = 0; i < 8; ++i) {
    held.push_back(std::make_unique<TestClient>(port_));
    if (i % 2 == 0) held.back()->send(kBeginning);
  }
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 8; }));
  TestClient other(port_, "127.0.0.2");
  EXPECT_TRUE(held.front()->closed_by_server());
  other.send(get_text("/"));
  EXPECT_EQ(other.receive().status, 400);  // no TLS: it was let in
}

TEST_F(TlsTest, WhoSpeaksNoTlsIsToldSo) {
  start_tls();
  TestClient client(port_);
  client.send(TestClient::post_text("/echo", std::string(100'000, 'x')));
  const auto answer = client.receive();
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("https://"), std::string::npos);
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(TlsTest, UnfinishedHandshakesEndWithTheServer) {
  start_tls();
  TestClient silent(port_), slow(port_);
  slow.send(kBeginning);
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 2; }));
  server_->stop(milliseconds(50));
  EXPECT_TRUE(silent.closed_by_server());
  EXPECT_TRUE(slow.closed_by_server());
}

}  // namespace
}  // namespace quire::server::http
