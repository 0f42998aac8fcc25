"""The peer's side of `scripts/bench-serve`: sentence-transformers behind FastAPI, one text a request.

usage: encode_server.py ENCODER plain|async [DEVICE]

As people write it: a plain function, which FastAPI runs in threads, or an async one, which answers in turn.
"""
import sys

import fastapi
import pydantic
import sentence_transformers
import uvicorn

encoder, way = sys.argv[1:3]
model = sentence_transformers.SentenceTransformer(encoder, device=sys.argv[3] if len(sys.argv) > 3 else "cpu")
app = fastapi.FastAPI()


class Text(pydantic.BaseModel):
    text: str


def vector(text):
    return {"vector": model.encode(text, show_progress_bar=False).tolist()}


if way == "plain":

    @app.post("/encode")
    def encode(body: Text):
        return vector(body.text)

else:

    @app.post("/encode")
    async def encode(body: Text):
        return vector(body.text)


# Any free port; uvicorn tells which on standard error.
uvicorn.run(app, host="127.0.0.1", port=0, access_log=False)
