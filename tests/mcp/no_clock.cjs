Date.prototype.toLocaleTimeString = () => "noon"; // so that an answer is the same at any time
