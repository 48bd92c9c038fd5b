package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"example.com/reminders/delaylog"
)

func main() {
	ctx := context.Background()
	config := delaylog.NewConfiguration()
	config.Servers = delaylog.ServerConfigurations{{URL: os.Getenv("DELAYLOG_URL")}}
	api := delaylog.NewAPIClient(config).NativeAPI

	message := delaylog.NewMessageToSend()
	message.SetBody("pay the rent")
	message.SetId("rent")
	message.SetDelayMs(100)
	sent, _, err := api.Send(ctx, "reminders").MessageToSendOrList(delaylog.MessageToSendOrList{MessageToSend: message}).Execute()
	check(err)
	fmt.Println(sent.SentMessage.Result)

	wanted := delaylog.NewReceiveOrPeek()
	wanted.SetMax(10)
	wanted.SetWaitMs(5000)
	received, _, err := api.Receive(ctx, "reminders").ReceiveOrPeek(*wanted).Execute()
	check(err)
	settle := delaylog.NewSettle()
	for _, message := range received.Messages {
		fmt.Println(message.Id, message.GetBody())
		settle.Receipts = append(settle.Receipts, message.Receipt)
	}

	settled, _, err := api.Ack(ctx, "reminders").Settle(*settle).Execute()
	check(err)
	fmt.Println(settled.Results)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
