package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"time"
)

// signer writes the date and the SharedKey signature of each request (auth 1.2, 1.5). It renews the date
// every second, like clients that sign each request when they send it.
type signer struct {
	account string
	mac     hash.Hash
	date    []byte
	dateDue int64
	message []byte
	digest  [sha256.Size]byte
}

func newSigner(account, key string) (*signer, error) {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return nil, err
	}
	return &signer{account: account, mac: hmac.New(sha256.New, secret)}, nil
}

func (s *signer) renewDate(now int64) {
	if now >= s.dateDue {
		s.date = time.Now().UTC().AppendFormat(s.date[:0], http.TimeFormat)
		s.dateDue = now + int64(time.Second)
	}
}

// appendHeaders appends x-ms-date and Authorization for a request with this verb, content type
// and encoded path.
func (s *signer) appendHeaders(out []byte, verb, contentType string, path []byte) []byte {
	message := append(s.message[:0], verb...)
	message = append(message, '\n', '\n')
	message = append(message, contentType...)
	message = append(message, '\n')
	message = append(message, s.date...)
	message = append(message, '\n', '/')
	message = append(message, s.account...)
	message = append(message, path...)
	s.message = message

	s.mac.Reset()
	s.mac.Write(message)
	digest := s.mac.Sum(s.digest[:0])

	out = append(out, "x-ms-date: "...)
	out = append(out, s.date...)
	out = append(out, "\r\nAuthorization: SharedKey "...)
	out = append(out, s.account...)
	out = append(out, ':')
	out = base64.StdEncoding.AppendEncode(out, digest)
	return append(out, '\r', '\n')
}
